//! Estimates for formats on a GPU, and the conversion to the chosen one.

use super::machine::{Refresh, Stores};
use super::ranking::{Ranking, Values};
use super::{Choice, Formats, Model, Operator};
use crate::device::{Cuda, CudaVector};
use crate::error::Result;
use crate::formats::{Analysis, Csr, CudaMatrix, MatrixSource, OnDevice};
use crate::numbers::Real;
use crate::saved::{FileReader, FileWriter, Loaded};
use krysp_solvers::ElemOf;

/// Function that converts a matrix, on a GPU, to a format with the options of its predicted work (`Offer`).
type Recipe<T> = Box<dyn Fn(&Cuda, &Csr<T>) -> Result<Box<dyn Refresh<CudaVector<T>>>>>;

/// The ranking of all formats that are available on a GPU, or of the named one, for a matrix.
pub(super) fn ranking<T: Real>(
    csr: &Csr<T>,
    values: Values,
    format: Option<&str>,
    multiprocessors: usize,
) -> Ranking<Recipe<T>> {
    let matrix = Analysis::new(csr, Model::Gpu { multiprocessors });
    let mut ranking = Ranking::new(matrix.rows, values, format);
    macro_rules! query {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
            crate::formats::where_on_gpu!($memory, {
                ranking.query::<T, crate::formats::$format<T>>(&matrix, recipe::<T, crate::formats::$format<T>>);
            });
        )*};
    }
    crate::formats::each_format!(query);
    ranking
}

fn recipe<T: Real, F: OnDevice<T> + 'static>(options: F::Options) -> Recipe<T> {
    Box::new(move |gpu, csr| Ok(Box::new(F::on_with(gpu, csr, options.clone())?)))
}

impl<T: Real> Stores<T> for Cuda {
    type Vector = CudaVector<T>;

    fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>) -> Result<Operator<CudaVector<T>>> {
        self.device().begin::<T>();
        let ranking = ranking(csr, values, format, self.device().multiprocessors()).only(format)?;
        let (matrix, choice) = ranking.convert(|recipe| recipe(self, csr))?;
        Ok(Operator { matrix, choice })
    }

    const KIND: &'static str = "a GPU";

    fn load(
        &self,
        from: &mut FileReader<'_>,
    ) -> Loaded<std::result::Result<Operator<CudaVector<T>>, Choice>> {
        from.knows_names(Formats::<T>::standard().names());
        Ok(Err(from.read()?))
    }
}

impl<T: Real, F: OnDevice<T>> Refresh<CudaVector<T>> for CudaMatrix<T, F> {
    fn refresh(&mut self, values: &[ElemOf<CudaVector<T>>]) -> Result<()> {
        CudaMatrix::refresh(self, values)
    }

    fn fill(&mut self, values: &[ElemOf<CudaVector<T>>]) -> Result<()> {
        CudaMatrix::fill(self, values)
    }

    fn origin(&self) -> &dyn MatrixSource<T> {
        self
    }

    fn kind(&self) -> &'static str {
        <Cuda as Stores<T>>::KIND
    }

    /// Writes nothing, because rebuilding the arrays on a GPU takes about as long as reading them from a
    /// file.
    fn save(&self, _: &mut FileWriter<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Choice, ProductWork, RowStatistics};
    use crate::formats::Strategy;
    use crate::testing::matrices::named;
    use krysp_kernels::cuda::csr::Rows;

    const H200: Model = Model::Gpu { multiprocessors: 132 };

    /// The choice for an H200.
    fn choose<T: Real>(name: &str) -> Choice {
        Choice::of(&named(name).unwrap().csr::<T>().unwrap(), H200)
    }

    /// The choice for an H200 if values remain symmetric.
    fn choose_symmetric<T: Real>(name: &str) -> Choice {
        Choice::of_symmetric(&named(name).unwrap().csr::<T>().unwrap(), H200).unwrap()
    }

    /// Asserts that the choice is the one in a table written by `cargo bench --features cuda --bench judge --
    /// h200`, for the original ordering of the matrix.
    fn assert_in_table(table: &str, name: &str, element: &str, choice: &Choice) {
        let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| row[..3] == [name, "given", element]);
        assert_eq!(row.map(|row| row[4]), Some(choice.stored().format()), "{name} {element}: {choice}");
    }

    /// Checks choices against the tables, which also show how close to the fastest format each choice is.
    #[test]
    fn choices_are_those_of_the_tables() {
        let table = include_str!("../../benches/record/h200/auto.csv");
        let small = [
            "st7_0.1M_nat",
            "st27_0.1M_nat",
            "p1_0.1M_perm",
            "el3_0.3M_nat",
            "el3_2M_perm",
            "rmat_2M",
            "circuit_1M",
        ];
        for name in small {
            assert_in_table(table, name, "f64", &choose::<f64>(name));
            assert_in_table(table, name, "f32", &choose::<f32>(name));
        }
        let table = include_str!("../../benches/record/h200/symmetric.csv");
        for name in &small[..5] {
            assert_in_table(table, name, "f64", &choose_symmetric::<f64>(name));
            assert_in_table(table, name, "f32", &choose_symmetric::<f32>(name));
        }
    }

    /// Storing one triangle is faster only for matrices larger than the L2 cache: compares costs for 10 and
    /// 100 million entries in a clustered ordering.
    #[test]
    fn symmetric_blocks_gain_where_a_matrix_is_large() {
        let table = include_str!("../../benches/record/h200/layouts.csv");
        let cost = |matrix: &str, element: &str, format: &str| {
            let mut found = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let is_it = |row: &Vec<&str>| row[..4] == [matrix, "clustered", element, format];
            let row = found.rfind(is_it).unwrap();
            let number = |at: usize| row[at].parse().unwrap();
            let work =
                ProductWork { bytes: number(5), gathers: number(6), rows: number(7), waits: number(8) };
            let cost_models = H200.cost_models();
            cost_models.iter().find(|cost_model| cost_model.0 == format).unwrap().1.cost(&work)
        };
        for element in ["f64", "f32"] {
            let gains = |matrix| cost(matrix, element, "symmetric BSR") < cost(matrix, element, "BSR");
            assert!(gains("el3_100M_perm") && !gains("el3_10M_perm"), "{element}");
        }
    }

    #[test]
    fn a_row_much_longer_than_the_others_is_cut() {
        for (name, is_cut) in
            [("st7_2M_nat", false), ("el3_2M_perm", false), ("rmat_2M", true), ("circuit_1M", true)]
        {
            for rows in [*choose::<f64>(name).rows(), *choose::<f32>(name).rows()] {
                let RowStatistics { rows: count, entries, longest, value, scattering, .. } = rows;
                let rows = Rows { count, entries, longest, value, scattering };
                assert_eq!(rows.strategy(132) != Strategy::Classical, is_cut, "{name}");
            }
        }
    }
}
