//! The schema of saved values: a hash of the names and types of their fields. If the meaning of a field changes (its unit, its
//! order), its name must change, too.
//!
//! Each value in a file follows the hash of its schema, so that a file whose fields are not those of this program is
//! refused before they are read. The hash depends on names in the source alone, not on addresses, the order of
//! compilation or the width of a pointer: it is equal on all platforms.

use super::Saved;
use super::checksum::{joined, step};

/// Hash of the fields that were described so far. A type that contains itself has no finite description.
pub struct Schema(u64);

impl Schema {
    /// Returns the hash of a type.
    pub(crate) fn hash<X: Saved>() -> u64 {
        let mut schema = Schema(joined(&[]));
        X::describe(&mut schema);
        schema.0
    }

    /// Adds a name: of a number type, a field or a variant.
    pub fn name(&mut self, name: &str) {
        let state = step(self.0, name.len() as u64);
        self.0 = name.bytes().fold(state, |state, byte| step(state, byte.into()));
    }

    /// Adds a part with its name and its type.
    pub fn part<X: Saved>(&mut self, name: &str) {
        self.name(name);
        self.name("{");
        X::describe(self);
        self.name("}");
    }

    /// Adds a field, whose type is inferred from the function that returns it.
    pub fn field<S, X: Saved>(&mut self, name: &str, _: fn(&S) -> Option<&X>) {
        self.part::<X>(name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::saved;
    use super::*;
    use std::sync::Arc;

    macro_rules! types {
        ($($name:ident { $($field:ident: $type:ty),* })*) => {$(
            #[derive(Debug, PartialEq)]
            struct $name { $($field: $type),* }
            saved!(impl[] $name { $($field),* });
        )*};
    }
    types! {
        Original { size: usize, value: f64 }
        Equal { size: usize, value: f64 }
        Renamed { length: usize, value: f64 }
        Retyped { size: usize, value: f32 }
        Reordered { value: f64, size: usize }
        Longer { size: usize, value: f64, more: Option<u32> }
        Of { inner: Vec<Arc<Original>>, bound: usize }
        OfRetyped { inner: Vec<Arc<Retyped>>, bound: usize }
        OfPair { inner: Vec<(Arc<Original>, usize)> }
    }

    enum Choice<const OTHER: bool> {
        One(f64),
        Two { size: usize },
    }
    saved!(impl[] enum Choice<false> { One { 0: value }, Two { size: size } });
    saved!(impl[] enum Choice<true> { One { 0: value }, Two { size: size } });

    struct Computed;
    saved!(impl[] Computed as |_this| { size: usize = &1, value: f64 = &2.0 } => {
        if size == 1 && value == 2.0 { Ok(Computed) } else { Err(crate::saved::InconsistentData) }
    });

    #[test]
    fn each_change_of_a_field_changes_the_hash() {
        let of = Schema::hash::<Original>();
        assert_eq!(of, Schema::hash::<Equal>());
        assert_eq!(of, Schema::hash::<Computed>(), "values that are written in another form have its fields");
        let others = [
            Schema::hash::<Renamed>(),
            Schema::hash::<Retyped>(),
            Schema::hash::<Reordered>(),
            Schema::hash::<Longer>(),
            Schema::hash::<Option<Original>>(),
            Schema::hash::<Of>(),
            Schema::hash::<OfRetyped>(),
            Schema::hash::<OfPair>(),
            Schema::hash::<Choice<true>>(),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(*other != of && !others[..at].contains(other), "{at}");
        }
    }

    /// The hash is the same in each build and on each platform. Values of an independent program.
    #[test]
    fn the_hash_is_that_of_the_names() {
        assert_eq!(Schema::hash::<Original>(), 0x87eb_0214_d4d1_74fc);
        assert_eq!(Schema::hash::<Choice<true>>(), 0x7bd7_97b6_6ee3_b4f4);
    }
}
