//! Runs the iterations (steps) of several right-hand sides in lockstep, one of each at a time, and applies
//! operators to multivectors. A column is open until its solve has ended, then closed: operations skip it.

use crate::{
    Condition, ElemOf, Element, Ending, Form, LinearOperator, MultiSpace, MultiVector, Result, Scalar,
    ScalarOf, SpaceOf, Steps, Vector,
};

/// Runs each step immediately. If a watched number of a column fails its condition, that column is closed
/// before the step changes its solution; the others continue. The numbers of all columns are read back
/// together: once for each watch, and once at the end of a step.
pub struct Lockstep<V: Vector> {
    space: MultiSpace<SpaceOf<V>>,
    columns: Vec<Column>,
    /// The numbers that the step recorded, not yet read back: first `‖r‖²`.
    recorded: Vec<ScalarOf<MultiVector<V>>>,
    /// Workspace for numbers that are read back.
    values: Vec<ElemOf<V>>,
    in_flight: bool,
}

/// State of one column: the numbers that its latest step recorded, and how that step ended.
struct Column {
    threshold_squared: f64,
    numbers: Vec<f64>,
    ending: Ending,
}

impl<V: Vector> Lockstep<V> {
    /// Sets the residual norm at which a column ends.
    pub(crate) fn set_threshold(&mut self, column: usize, threshold: f64) {
        self.columns[column].threshold_squared = threshold * threshold;
    }

    /// Ending of the latest step of a column, and the numbers that it recorded.
    pub(crate) fn of_column(&self, column: usize) -> (Ending, &[f64]) {
        let Column { ending, numbers, .. } = &self.columns[column];
        (*ending, numbers)
    }

    /// Reads back the numbers that the step recorded, for the open columns.
    fn read_recorded(&mut self) -> Result<()> {
        let Lockstep { space, columns, recorded, values, .. } = self;
        read_open::<V>(space, recorded, values)?;
        let open = columns.iter_mut().enumerate().filter(|(column, _)| space.is_open(*column));
        for ((_, column), numbers) in open.zip(values.chunks(recorded.len().max(1))) {
            column.numbers.extend(numbers.iter().map(|number| number.to_f64()));
            if let Some(&squared) = column.numbers.first() {
                let continues = squared.is_finite() && squared > column.threshold_squared;
                column.ending = Ending::Completed { last: !continues };
            }
        }
        Ok(())
    }

    /// The columns that are open.
    fn open(&mut self) -> impl Iterator<Item = (usize, &mut Column)> {
        let space = &self.space;
        self.columns.iter_mut().enumerate().filter(move |(column, _)| space.is_open(*column))
    }
}

/// Reads the values of some scalars in the open columns: all scalars of one column, then those of the next.
fn read_open<V: Vector>(
    space: &MultiSpace<SpaceOf<V>>,
    scalars: &[ScalarOf<MultiVector<V>>],
    values: &mut Vec<ElemOf<V>>,
) -> Result<()> {
    values.clear();
    let open = (0..space.columns()).filter(|&column| space.is_open(column));
    ScalarOf::<V>::read_all(open.flat_map(|j| scalars.iter().map(move |scalar| scalar.column(j))), values)
}

impl<V: Vector> Steps<MultiVector<V>> for Lockstep<V> {
    const LAG: usize = 1;

    fn new(space: &MultiSpace<SpaceOf<V>>, numbers: usize) -> Result<Self> {
        let column = |_| Column {
            threshold_squared: 0.0,
            numbers: Vec::with_capacity(numbers),
            ending: Ending::Completed { last: false },
        };
        let columns = (0..space.columns()).map(column).collect();
        let recorded = Vec::with_capacity(numbers);
        Ok(Lockstep { space: space.clone(), columns, recorded, values: Vec::new(), in_flight: false })
    }

    /// Sets one threshold for all columns.
    fn begin(&mut self, threshold_squared: f64) -> Result<()> {
        self.columns.iter_mut().for_each(|column| column.threshold_squared = threshold_squared);
        self.in_flight = false;
        Ok(())
    }

    fn run(&mut self, _: usize, _: bool, step: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for (_, column) in self.open() {
            column.numbers.clear();
            column.ending = Ending::Completed { last: false };
        }
        self.in_flight = true;
        self.recorded.clear();
        step(self)?;
        self.read_recorded()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    /// The numbers and the ending of the first column.
    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending> {
        self.in_flight = false;
        let Some(first) = self.columns.first() else { return Ok(Ending::Completed { last: true }) };
        numbers.clone_from(&first.numbers);
        Ok(first.ending)
    }

    fn watch(
        &mut self,
        what: &'static str,
        value: &ScalarOf<MultiVector<V>>,
        must_be: Condition,
    ) -> Result<()> {
        let Lockstep { space, columns, values, .. } = self;
        read_open::<V>(space, std::slice::from_ref(value), values)?;
        let open = columns.iter_mut().enumerate().filter(|(j, _)| space.is_open(*j));
        for ((j, column), value) in open.zip(values.iter()) {
            let value = value.to_f64();
            if !must_be.holds(value) {
                column.ending = Ending::Failed { what, value };
                space.close(j);
            }
        }
        Ok(())
    }

    fn residual(&mut self, squared: &ScalarOf<MultiVector<V>>) -> Result<()> {
        self.recorded.insert(0, squared.clone());
        Ok(())
    }

    fn record(&mut self, value: &ScalarOf<MultiVector<V>>) -> Result<()> {
        self.recorded.push(value.clone());
        Ok(())
    }
}

/// An operator on the columns of multivectors.
pub(crate) struct OnColumns<'s, V: Vector> {
    operator: &'s dyn LinearOperator<Vector = V>,
    domain: MultiSpace<SpaceOf<V>>,
    range: MultiSpace<SpaceOf<V>>,
}

impl<'s, V: Vector> OnColumns<'s, V> {
    /// An operator on the columns of a space.
    pub(crate) fn new(
        operator: &'s dyn LinearOperator<Vector = V>,
        columns: &MultiSpace<SpaceOf<V>>,
    ) -> Self {
        let space = |of: &SpaceOf<V>| columns.with_column_space(of);
        OnColumns { domain: space(operator.domain()), range: space(operator.range()), operator }
    }
}

impl<V: Vector> LinearOperator for OnColumns<'_, V> {
    type Vector = MultiVector<V>;

    fn domain(&self) -> &MultiSpace<SpaceOf<V>> {
        &self.domain
    }

    fn range(&self) -> &MultiSpace<SpaceOf<V>> {
        &self.range
    }

    fn apply(&self, x: &MultiVector<V>, y: &mut MultiVector<V>) -> Result<()> {
        self.operator.apply_many(x, y)
    }

    fn apply_dot(&self, x: &MultiVector<V>, y: &mut MultiVector<V>) -> Result<ScalarOf<MultiVector<V>>> {
        self.operator.apply_dot_many(x, y)
    }

    /// A diagonal operator is applied in the pass that updates `r`, which moves fewer bytes than two passes.
    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<MultiVector<V>>,
        q: &MultiVector<V>,
        r: &mut MultiVector<V>,
        z: &mut MultiVector<V>,
    ) -> Result<[ScalarOf<MultiVector<V>>; 2]> {
        if let Form::Diagonal(d) = self.operator.form() {
            return Ok(r.axpy_multiply_dot_by(a, q, d, z));
        }
        let rr = r.axpy_norm(a, q);
        Ok([rr, self.apply_dot(r, z)?])
    }

    fn form(&self) -> Form<'_, MultiVector<V>> {
        match self.operator.form() {
            Form::Identity => Form::Identity,
            _ => Form::General,
        }
    }

    fn bytes(&self) -> usize {
        self.operator.bytes()
    }
}
