//! The matrices that the benches measure, by name.

use super::{
    Irregular, Matrix, Neighbours, NodeOrder, TABLE_3, circuit, elasticity, graph, hashed_circuit,
    hashed_dense_row, hashed_mesh, hashed_rmat, rmat, stencil7, stencil27, tetrahedra,
};
use Neighbours::{Box, Faces, Tetrahedra};
use Recipe::*;

/// The window within which the nodes of the large meshes are shuffled.
const WINDOW: usize = 4096;

/// The largest number of nodes per side that a name may have. All indices then fit in their types.
pub const LARGEST_SIDE: usize = 1000;

/// Nodes per side of the tetrahedral meshes of the benches: about half a million nodes in all.
const TETRAHEDRA_SIDE: usize = 79;

enum Recipe {
    /// `hashed_mesh` with neighbours, nodes per side, unknowns per node, and window.
    HashedMesh(Neighbours, usize, usize, usize),
    /// `hashed_rmat` with scale and edges per row.
    HashedRmat(u32, usize),
    /// `hashed_circuit` with the number of rows.
    HashedCircuit(usize),
    /// `stencil7` with the nodes per side.
    Stencil7(usize),
    /// `stencil27` with the nodes per side.
    Stencil27(usize),
    /// `elasticity` with the nodes per side.
    Elasticity(usize),
    /// `tetrahedra` with the nodes per side and the ordering.
    Tets(usize, NodeOrder),
    /// A matrix of [`TABLE_3`].
    Printed(Irregular),
    /// `hashed_dense_row` with rows and columns.
    HashedDenseRow(usize, usize),
    /// `rmat` with scale and edges.
    Rmat(u32, usize),
    /// `circuit` with rows and draws per dense row.
    Circuit(usize, usize),
}

impl Recipe {
    fn make(&self) -> Matrix {
        match *self {
            HashedMesh(neighbours, side, unknowns, window) => hashed_mesh(neighbours, side, unknowns, window),
            HashedRmat(scale, edges_per_row) => hashed_rmat(scale, edges_per_row),
            HashedCircuit(rows) => hashed_circuit(rows),
            Stencil7(side) => stencil7(side),
            Stencil27(side) => stencil27(side),
            Elasticity(side) => elasticity(side),
            Tets(side, order) => tetrahedra(side, order),
            Printed(line) => line.matrix(),
            HashedDenseRow(rows, cols) => hashed_dense_row(rows, cols),
            Rmat(scale, edges) => rmat(scale, edges),
            Circuit(rows, dense_entries) => circuit(rows, dense_entries),
        }
    }

    /// The rows and columns of the matrix.
    fn shape(&self) -> (usize, usize) {
        let rows = match *self {
            HashedMesh(_, side, unknowns, _) => side.pow(3) * unknowns,
            HashedRmat(scale, _) | Rmat(scale, _) => 1 << scale,
            HashedCircuit(rows) | Circuit(rows, _) => rows,
            Stencil7(side) | Stencil27(side) => side.pow(3),
            Tets(side, _) => side.pow(3),
            Elasticity(side) => 3 * side.pow(3),
            Printed(line) => return (line.rows, line.cols),
            HashedDenseRow(rows, cols) => return (rows, cols),
        };
        (rows, rows)
    }
}

const FIXED: &[(&str, Recipe)] = &[
    // hashed matrices for products, named by their nonzeros
    ("tiny_el3", HashedMesh(Box, 7, 3, 64)),
    ("st7_0.1M_nat", HashedMesh(Faces, 24, 1, 0)),
    ("p1_0.1M_perm", HashedMesh(Tetrahedra, 19, 1, 512)),
    ("st27_0.1M_nat", HashedMesh(Box, 16, 1, 0)),
    ("el3_0.3M_nat", HashedMesh(Box, 11, 3, 0)),
    ("st7_2M_nat", HashedMesh(Faces, 64, 1, 0)),
    ("el3_2M_perm", HashedMesh(Box, 20, 3, 512)),
    ("el3_10M_nat", HashedMesh(Box, 34, 3, 0)),
    ("el3_10M_perm", HashedMesh(Box, 34, 3, WINDOW)),
    ("p1_10M_nat", HashedMesh(Tetrahedra, 87, 1, 0)),
    ("p1_10M_perm", HashedMesh(Tetrahedra, 87, 1, WINDOW)),
    ("st27_10M_nat", HashedMesh(Box, 72, 1, 0)),
    ("st27_10M_perm", HashedMesh(Box, 72, 1, WINDOW)),
    ("st7_15M_nat", HashedMesh(Faces, 128, 1, 0)),
    ("p1_100M_perm", HashedMesh(Tetrahedra, 188, 1, WINDOW)),
    ("el3_100M_nat", HashedMesh(Box, 74, 3, 0)),
    ("el3_100M_perm", HashedMesh(Box, 74, 3, WINDOW)),
    ("st27_100M_nat", HashedMesh(Box, 155, 1, 0)),
    ("st7_100M_nat", HashedMesh(Faces, 243, 1, 0)),
    ("rmat_2M", HashedRmat(17, 16)),
    ("rmat_8M", HashedRmat(19, 16)),
    ("rmat_33M", HashedRmat(21, 16)),
    ("rmat_100M", HashedRmat(23, 12)),
    ("circ_1M", HashedCircuit(200_000)),
    ("circuit_1M", HashedCircuit(200_000)),
    ("circ_25M", HashedCircuit(4_000_000)),
    ("circuit_25M", HashedCircuit(4_000_000)),
    ("dense_row_10M", HashedDenseRow(300_000, 10_000_000)),
    // hashed matrices for solvers, made diagonally dominant, named by their rows or side
    ("st7_20k", HashedMesh(Faces, 27, 1, 0)),
    ("el3_20k", HashedMesh(Box, 19, 3, 512)),
    ("st7_200k", HashedMesh(Faces, 58, 1, 0)),
    ("p1_200k", HashedMesh(Tetrahedra, 58, 1, WINDOW)),
    ("el3_200k", HashedMesh(Box, 41, 3, WINDOW)),
    ("st7_128", HashedMesh(Faces, 128, 1, 0)),
    // matrices of the benches against other CPU libraries: values of a discretization, or sequential random
    // numbers
    ("p7_128", Stencil7(128)),
    ("p27_80", Stencil27(80)),
    ("elast55", Elasticity(55)),
    ("tet_rand", Tets(TETRAHEDRA_SIDE, NodeOrder::Shuffled(7))),
    ("tet_nat", Tets(TETRAHEDRA_SIDE, NodeOrder::Natural)),
    ("rmat20", Rmat(graph::PEER_SCALE, graph::PEER_EDGES)),
    ("circuit1m", Circuit(1_000_000, 200_000)),
    // row lengths of published matrices
    ("webbase_like", Printed(TABLE_3[0])),
    ("lp_like", Printed(TABLE_3[1])),
    ("asic_680k_like", Printed(TABLE_3[2])),
    ("boyd2_like", Printed(TABLE_3[3])),
    ("dc2_like", Printed(TABLE_3[4])),
    ("ins2_like", Printed(TABLE_3[5])),
    ("rajat21_like", Printed(TABLE_3[6])),
    ("transient_like", Printed(TABLE_3[7])),
];

/// The names of all matrices of fixed size.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIXED.iter().map(|(name, _)| *name)
}

/// The numbers of rows and columns of the matrix that [`named`] returns for a name, without making the
/// matrix.
pub fn shape_of(name: &str) -> Option<(usize, usize)> {
    Some(match FIXED.iter().find(|(fixed, _)| *fixed == name) {
        Some((_, recipe)) => recipe.shape(),
        None => sized(name)?.shape(),
    })
}

/// The nodes per side in a name, without an upper limit: 2000 for `p7_2000`. `None` if the name is not of a family.
pub fn side_of(name: &str) -> Option<usize> {
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if !FAMILIES.contains(&family) {
        return None;
    }
    // only digits are left, so if they cannot be parsed, the number is too large
    let digits = &name[family.len()..];
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX))
}

const FAMILIES: [&str; 5] = ["st7_", "st27_", "p7_", "p27_", "elast"];

/// The matrix with one of the [`names`], or with the name `st7_N`, `st27_N`, `p7_N`, `p27_N` or `elastN` for N nodes a
/// side, up to 1000.
///
/// ```
/// use krysp::testing::matrices::named;
///
/// let tiny = named("tiny_el3").map(|matrix| (matrix.rows, matrix.nnz()));
/// assert_eq!(tiny, Some((1029, 61_731)));
/// assert!(named("no such matrix").is_none());
/// ```
pub fn named(name: &str) -> Option<Matrix> {
    match FIXED.iter().find(|(fixed, _)| *fixed == name) {
        Some((_, recipe)) => Some(recipe.make()),
        None => sized(name).map(|recipe| recipe.make()),
    }
}

fn sized(name: &str) -> Option<Recipe> {
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let side = side_of(name).filter(|side| (1..=LARGEST_SIDE).contains(side))?;
    match family {
        "st7_" => Some(HashedMesh(Faces, side, 1, 0)),
        "st27_" => Some(HashedMesh(Box, side, 1, 0)),
        "p7_" => Some(Stencil7(side)),
        "p27_" => Some(Stencil27(side)),
        "elast" => Some(Elasticity(side)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_the_small_ones_have_their_size() {
        assert_eq!(names().collect::<HashSet<_>>().len(), names().count());
        let size = |name| named(name).map(|matrix| (matrix.rows, matrix.nnz()));
        assert_eq!(size("st7_0.1M_nat"), Some((24 * 24 * 24, 7 * 24 * 24 * 24 - 6 * 24 * 24)));
        assert_eq!(size("st7_6"), Some((216, 1296)));
        assert_eq!(size("p27_5"), Some((125, 2197)));
        assert_eq!(size("elast4"), Some((192, 9000)));
        assert_eq!(size("st7_20k").map(|(rows, _)| rows), Some(19_683));
        assert_eq!(size("el3_20k").map(|(rows, _)| rows), Some(20_577));
    }

    #[test]
    fn shapes_are_known_without_making_the_matrix() {
        let recipes = [
            HashedMesh(Faces, 4, 1, 0),
            HashedMesh(Tetrahedra, 4, 1, 8),
            HashedMesh(Box, 3, 3, 8),
            HashedRmat(6, 4),
            HashedCircuit(500),
            Stencil7(4),
            Stencil27(3),
            Elasticity(3),
            Tets(5, NodeOrder::Natural),
            HashedDenseRow(30, 500),
            Rmat(6, 100),
            Circuit(500, 20),
        ];
        for recipe in recipes {
            let matrix = recipe.make();
            assert_eq!(recipe.shape(), (matrix.rows, matrix.cols));
        }
        assert_eq!(shape_of("p7_20"), Some((8000, 8000)));
        assert_eq!((shape_of("p7_2000"), side_of("p7_2000")), (None, Some(2000)));
        assert_eq!((side_of("p7_"), side_of("webbase_like")), (None, None));
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "7",
            "st7",
            "st7_",
            "st7_0",
            "st7_1001",
            "st7_-3",
            "st7_99999999999999999999",
            "elast",
            "p1_100",
            "é3",
        ] {
            assert!(named(name).is_none(), "{name}");
        }
    }
}
