//! The ranking of formats by their estimated cost.

use super::ProductWork;
use super::candidate::{Candidate, Choice, Estimate, StoredFormat};
use crate::error::{Error, Result};
use crate::formats::analysis::RowStatistics;
use crate::formats::{Analysis, Offer, Offered};
use crate::numbers::Real;
use crate::spelling::same_name;
use krysp_kernels::interrupt;

/// Known properties of the present and future values of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// No known property.
    Any,
    /// The values are and remain symmetric.
    Symmetric,
}

/// Reason why symmetric formats are not chosen for `Values::Any`: they would not detect unsymmetric new
/// values.
const SYMMETRIC: &str = "values must remain symmetric: use `Operator::symmetric` if they do";

/// Estimates, each with a function that converts the matrix, and the formats without an estimate.
pub(super) struct Ranking<R> {
    rows: RowStatistics,
    values: Values,
    offered: Vec<(Estimate, R)>,
    unsuitable: Vec<Candidate>,
    /// Name of the only format that is considered; `None` for all formats.
    wanted: Option<String>,
    /// Names of the formats that are not considered.
    others: Vec<&'static str>,
}

impl<R> Ranking<R> {
    /// An empty ranking, for all formats or only for the one with this name in any spelling.
    pub(super) fn new(rows: RowStatistics, values: Values, wanted: Option<&str>) -> Ranking<R> {
        let wanted = wanted.map(str::to_owned);
        Ranking { rows, values, offered: vec![], unsuitable: vec![], wanted, others: vec![] }
    }

    /// Adds the estimates of a format, one for each of its offers (predicted work with some options), or the
    /// reason why it is unsuitable.
    pub(super) fn query<T: Real, F: Offered<T>>(
        &mut self,
        matrix: &Analysis<'_, T>,
        recipe: impl Fn(F::Options) -> R,
    ) {
        // skip the analysis for other formats, as it can take as long as a conversion
        if let Some(wanted) = &self.wanted {
            let variants = F::variants();
            match variants.iter().find(|variant| same_name(variant.name, wanted)) {
                Some(named) => {
                    if let Err(why) = named.cost_model(matrix.machine) {
                        let refused = Candidate::Unsuitable { format: named.name, why: why.into() };
                        return self.unsuitable.push(refused);
                    }
                }
                None => {
                    let here = variants.iter().filter(|variant| variant.cost_model(matrix.machine).is_ok());
                    return self.others.extend(here.map(|variant| variant.name));
                }
            }
        }
        let not_offered =
            F::variants().into_iter().next().and_then(|first| first.cost_model(matrix.machine).err());
        let offers = match not_offered {
            _ if F::SYMMETRIC && self.values == Values::Any => Err(SYMMETRIC.into()),
            Some(why) => Err(why.into()),
            None => F::offers(matrix).map_err(|error| match error {
                Error::Unsuitable { why, .. } => why,
                other => other.to_string(),
            }),
        };
        let offers = match offers {
            Ok(offers) => offers,
            Err(why) => return self.unsuitable.push(Candidate::Unsuitable { format: F::NAME, why }),
        };
        for Offer { variant, detail, options, bytes, slots, gathers, rows, waits } in offers {
            let format = variant.name;
            match variant.cost_model(matrix.machine) {
                Ok(cost_model) => {
                    let work =
                        ProductWork { bytes: bytes as f64, gathers, rows: rows as f64, waits: waits as f64 };
                    let entries = matrix.csr.nnz();
                    let padding = slots.saturating_sub(entries) as f64 / entries.max(1) as f64;
                    let stored = StoredFormat { format, detail, symmetric: F::SYMMETRIC };
                    let estimate = Estimate { stored, bytes, padding, work, cost: cost_model.cost(&work) };
                    self.offered.push((estimate, recipe(options)));
                }
                Err(why) => self.unsuitable.push(Candidate::Unsuitable { format, why: why.into() }),
            }
        }
    }

    /// All estimates, each with the function that converts the matrix.
    pub(super) fn offered(self) -> Vec<(Estimate, R)> {
        self.offered
    }

    /// Keeps the formats that fit in `free` bytes of memory; the others become unsuitable, with the memory
    /// that they need in the reason.
    pub(super) fn fitting(mut self, free: Option<usize>) -> Result<Ranking<R>> {
        let Some(free) = free else { return Ok(self) };
        let fits = |(estimate, _): &(Estimate, R)| estimate.bytes <= free;
        let (fitting, others): (Vec<_>, Vec<_>) = self.offered.into_iter().partition(fits);
        if fitting.is_empty()
            && let Some((least, _)) = others.iter().min_by_key(|(estimate, _)| estimate.bytes)
        {
            let (what, bytes) = (least.stored.format, least.bytes as u128);
            return Err(Error::Allocation { what, bytes, free });
        }
        let too_large = |(Estimate { stored, bytes, .. }, _): (Estimate, R)| Candidate::Unsuitable {
            format: stored.format,
            why: format!("it needs {bytes} bytes, but only {free} are free"),
        };
        self.unsuitable.extend(others.into_iter().map(too_large));
        Ok(Ranking { offered: fitting, ..self })
    }

    /// Bytes of the largest of the estimated formats.
    pub(super) fn max_bytes(&self) -> usize {
        self.offered.iter().map(|(estimate, _)| estimate.bytes).max().unwrap_or(0)
    }

    /// Keeps only the named format, if there is a name. Returns an error if the format is unsuitable or
    /// unknown.
    pub(super) fn only(mut self, name: Option<&str>) -> Result<Ranking<R>> {
        let Some(name) = name else { return Ok(self) };
        let wanted = |format: &str| same_name(format, name);
        if self.offered.iter().any(|(estimate, _)| wanted(estimate.stored.format)) {
            self.offered.retain(|(estimate, _)| wanted(estimate.stored.format));
            return Ok(self);
        }
        for candidate in self.unsuitable {
            if let Candidate::Unsuitable { format, why } = candidate
                && wanted(format)
            {
                return Err(Error::Unsuitable { format, why });
            }
        }
        Err(Error::Unknown { what: "format", got: name.into(), known: self.others.join(", ") })
    }

    /// The choice of the format with the lowest cost. There is at least one estimate, because CSR is
    /// available for every matrix and machine.
    pub(super) fn choice(mut self) -> Choice {
        self.sort();
        let mut offered: Vec<Estimate> = self.offered.into_iter().map(|(estimate, _)| estimate).collect();
        let chosen = offered.remove(0);
        Choice::new(self.rows, chosen, offered, self.unsuitable)
    }

    /// Converts to the format with the lowest cost. If a conversion fails for a reason that its estimate did
    /// not detect, such as an index out of range, converts to the next format.
    pub(super) fn convert<A>(mut self, convert: impl Fn(R) -> Result<A>) -> Result<(A, Choice)> {
        self.sort();
        let mut offered = self.offered.into_iter();
        while let Some((estimate, recipe)) = offered.next() {
            interrupt::check("conversion to a format")?;
            match convert(recipe) {
                Ok(matrix) => {
                    let others = offered.map(|(estimate, _)| estimate).collect();
                    return Ok((matrix, Choice::new(self.rows, estimate, others, self.unsuitable)));
                }
                Err(Error::Unsuitable { format, why }) if offered.len() > 0 => {
                    self.unsuitable.push(Candidate::Unsuitable { format, why });
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unsuitable { format: "every format", why: "none was offered".into() })
    }

    /// Sorts by cost, stably: formats of equal cost keep the order of the list of formats.
    fn sort(&mut self) {
        self.offered.sort_by(|(a, _), (b, _)| a.cost.total_cmp(&b.cost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::host::Recipe;
    use crate::choice::{CostModel, Formats, Model};
    use crate::formats::{Bsr, Coefficients, Csr, Dia, Format, Variant};
    use crate::testing::matrices;
    use krysp_kernels::cpu::simd::{Level, force};
    use std::collections::HashSet;

    fn standard(csr: &Csr<f64>, values: Values, format: Option<&str>) -> Ranking<Recipe<f64>> {
        Formats::standard().ranking(csr, values, format)
    }

    fn models() -> Vec<Model> {
        vec![
            Model::Host,
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors: 132 },
        ]
    }

    #[test]
    fn errors_distinguish_unavailable_formats_from_unknown_ones() {
        let csr = matrices::stencil7(5).csr::<f64>().unwrap();
        let queried = |name: &str| standard(&csr, Values::Any, Some(name)).only(Some(name)).map(|_| ());
        assert!(queried("csr").is_ok());
        assert!(matches!(queried("CSR merge-path"), Err(Error::Unsuitable { format: "CSR merge-path", .. })));
        let Err(Error::Unknown { known, .. }) = queried("CSRR") else { panic!("there is no such format") };
        assert!(
            known.contains("CSR") && known.contains("SELL-P") && !known.contains("merge-path"),
            "{known}"
        );
    }

    /// Names are unique, the first is that of the format, and each variant has a cost model or a reason why
    /// it has none.
    #[test]
    fn every_format_has_a_name_and_a_cost_model_or_a_reason() {
        let mut formats: Vec<(&str, Vec<Variant>)> = vec![];
        macro_rules! list {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                $(formats.push((
                    crate::formats::$format::<f64>::NAME,
                    <crate::formats::$format<f64> as Offered<f64>>::variants(),
                ));)*
            };
        }
        crate::formats::each_format!(list);
        let names: Vec<&str> = formats.iter().flat_map(|(_, all)| all.iter().map(|one| one.name)).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        for (name, variants) in &formats {
            assert_eq!(variants.first().map(|first| first.name), Some(*name));
            for model in models() {
                for variant in variants {
                    assert!(
                        variant
                            .cost_model(model)
                            .map_or_else(|why| !why.is_empty(), |cost_model| cost_model.byte > 0.0)
                    );
                }
            }
        }
        for model in models() {
            assert!(model.cost_models().iter().any(|(name, _)| *name == "CSR"));
        }
    }

    /// The estimated bytes of each format differ from its actual bytes by at most 1 % and 100 bytes.
    #[test]
    fn estimated_bytes_are_correct() {
        // the slice height depends on the SIMD level, which other tests may change at the same time
        let _one_level = force(Level::Portable);
        for triplets in [
            matrices::stencil7(12).to_triplets(),
            matrices::elasticity(6).to_triplets(),
            matrices::edge::dense_row(3000, 70),
        ] {
            let csr = triplets.csr::<f64>().unwrap();
            let values = match crate::formats::check_symmetric(&csr) {
                Ok(()) => Values::Symmetric,
                Err(_) => Values::Any,
            };
            let ranking = standard(&csr, values, None);
            assert!(ranking.offered.len() >= 4);
            for (estimate, recipe) in ranking.offered {
                let real = recipe(&csr).unwrap().bytes();
                let Estimate { stored, bytes, .. } = estimate;
                assert!(100 * bytes.abs_diff(real) <= real + 10_000, "{stored}: {bytes}, not {real}");
            }
        }
    }

    /// A format that does not fit into memory is not chosen; if none fits, the error names the smallest one.
    #[test]
    fn formats_that_do_not_fit_into_memory_are_not_chosen() {
        let _one_level = force(Level::Portable);
        let csr = matrices::stencil7(12).csr::<f64>().unwrap();
        let ranked = || standard(&csr, Values::Any, None);
        let bytes: Vec<usize> = ranked().offered.iter().map(|(estimate, _)| estimate.bytes).collect();
        let (least, most) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
        let choice = ranked().fitting(Some(most - 1)).unwrap().choice();
        assert!(
            choice.to_string().contains(&format!("it needs {most} bytes, but only {} are free", most - 1)),
            "{choice}"
        );
        assert!(choice.chosen().bytes < most);
        let refused = ranked().fitting(Some(least - 1)).err();
        assert!(
            matches!(refused, Some(Error::Allocation { bytes, .. }) if bytes == least as u128),
            "{refused:?}"
        );
        assert_eq!(ranked().fitting(None).unwrap().offered.len(), bytes.len());
    }

    /// If a conversion fails because a format is unsuitable, the next format is chosen, and the report has
    /// the reason.
    #[test]
    fn the_next_format_is_tried_after_a_failed_conversion() {
        // cost models depend on the SIMD level, which other tests may change at the same time
        let _one_level = force(Level::Portable);
        let csr = matrices::stencil7(5).csr::<f64>().unwrap();
        let first = standard(&csr, Values::Any, None).choice();
        let refuse = |many: usize| {
            let turns = std::cell::Cell::new(0);
            standard(&csr, Values::Any, None).convert(|_| {
                turns.set(turns.get() + 1);
                let refused = || Error::Unsuitable { format: "refused", why: turns.get().to_string() };
                if turns.get() <= many { Err(refused()) } else { Ok(turns.get()) }
            })
        };
        let (turn, choice) = refuse(1).unwrap();
        assert_eq!(turn, 2);
        assert!(matches!(&first.rejected()[0], Candidate::HigherCost(second) if second == choice.chosen()));
        assert_eq!(choice.rejected().len(), first.rejected().len());
        assert!(choice.to_string().ends_with("\nnot refused: 1"), "{choice}");
        assert!(matches!(refuse(100), Err(Error::Unsuitable { format: "refused", .. })));
    }

    /// Elasticity on a large grid: 81 entries in each row in full blocks, on 99 diagonals. BSR reads fewer bytes
    /// and is chosen at every SIMD level.
    #[test]
    fn full_blocks_cost_less_in_bsr_than_in_dia() {
        fn by_level(coefficients: Coefficients) -> [CostModel; 2] {
            match coefficients {
                Coefficients::Fixed(cost_model) => [cost_model; 2],
                Coefficients::BySimdLevel { avx512, other } => [avx512, other],
                Coefficients::NotOffered(why) => panic!("{why}"),
            }
        }
        let of_bsr = by_level(<Bsr<f64> as Offered<f64>>::variants()[0].host);
        let of_dia = by_level(<Dia<f64> as Offered<f64>>::variants()[0].host);
        for (bsr, dia) in of_bsr.iter().zip(of_dia) {
            for value in [4.0, 8.0] {
                let work = |bytes| ProductWork { bytes, ..ProductWork::default() };
                let [blocks, diagonals] = [81.0 * (value + 4.0 / 9.0), 99.0 * value].map(work);
                assert!(bsr.cost(&blocks) < dia.cost(&diagonals), "values of {value} bytes");
            }
        }
    }
}
