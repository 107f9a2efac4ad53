//! Adjacency lists of variables and elements.

/// Adjacency lists, stored consecutively: for each variable its elements, then its neighbours; for each
/// element its variables.
pub(super) struct Lists {
    pub(super) items: Vec<u32>,
    pub(super) starts: Vec<usize>,
    pub(super) lengths: Vec<u32>,
    /// Number of items in each list that are elements.
    pub(super) elements: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { items: vec![], starts: vec![0], lengths: vec![], elements: vec![] }
    }
}

impl Lists {
    /// Ends the current list.
    pub(super) fn close(&mut self, elements: usize) {
        let start = self.starts.last().copied().unwrap_or(0);
        self.lengths.push((self.items.len() - start) as u32);
        self.elements.push(elements as u32);
        self.starts.push(self.items.len());
    }

    pub(super) fn range(&self, of: usize) -> std::ops::Range<usize> {
        self.starts[of]..self.starts[of] + self.lengths[of] as usize
    }
}
