//! Properties of a system that a user declares, converted from Python objects for a plan.

use crate::arrays::{array, entries};
use crate::matrix::Number;
use krysp::Plan;
use pyo3::prelude::*;

/// Declared properties of a system. The Python package has checked the arrays; they are in double precision.
#[derive(Default)]
pub(crate) struct Declarations {
    near_null_space: Vec<Vec<f64>>,
    points: Option<Vec<[f64; 3]>>,
    components: Option<Vec<usize>>,
    null_space: Vec<Vec<f64>>,
    symmetric: Option<bool>,
    positive_definite: Option<bool>,
    fields: Option<Vec<usize>>,
}

/// Extracts the properties from a dictionary, in which `None` stands for a property that was not declared.
impl<'py> FromPyObject<'_, 'py> for Declarations {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Declarations> {
        let item = |name: &str| given.get_item(name).map(|item| (!item.is_none()).then_some(item));
        let vectors = |name: &str| -> PyResult<Vec<Vec<f64>>> {
            let Some(list) = item(name)? else { return Ok(vec![]) };
            list.try_iter()?.map(|one| Ok(entries(name, &array::<f64>(name, &one?)?)?.to_vec())).collect()
        };
        let indices = |name: &str| -> PyResult<Option<Vec<usize>>> {
            let Some(one) = item(name)? else { return Ok(None) };
            let one = array::<i64>(name, &one)?;
            // a negative index becomes a very large one, which the plan rejects
            Ok(Some(entries(name, &one)?.iter().map(|&index| index as usize).collect()))
        };
        let flag = |name: &str| item(name)?.map(|one| one.extract::<bool>()).transpose();
        let points = match item("coordinates")? {
            Some(flat) => {
                let flat = array::<f64>("coordinates", &flat)?;
                let (points, _) = entries("coordinates", &flat)?.as_chunks::<3>();
                Some(points.to_vec())
            }
            None => None,
        };
        Ok(Declarations {
            near_null_space: vectors("near_null_space")?,
            points,
            components: indices("components")?,
            null_space: vectors("null_space")?,
            symmetric: flag("symmetric")?,
            positive_definite: flag("positive_definite")?,
            fields: indices("fields")?,
        })
    }
}

impl Declarations {
    /// Declares the properties to a plan.
    pub(crate) fn declare_to<'a, T: Number>(&self, mut plan: Plan<'a, T>) -> Plan<'a, T> {
        let precise = |vectors: &[Vec<f64>]| -> Vec<Vec<T>> {
            vectors.iter().map(|vector| vector.iter().map(|&v| T::from_f64(v)).collect()).collect()
        };
        match (&self.points, &self.components) {
            (Some(points), Some(components)) => plan = plan.unknown_coordinates(points, components),
            (Some(points), None) => plan = plan.coordinates(points),
            (None, _) => {}
        }
        if !self.near_null_space.is_empty() {
            plan = plan.near_null_space(&precise(&self.near_null_space));
        }
        if !self.null_space.is_empty() {
            plan = plan.null_space(&precise(&self.null_space));
        }
        if let Some(symmetric) = self.symmetric {
            plan = plan.symmetric(symmetric);
        }
        if let Some(positive_definite) = self.positive_definite {
            plan = plan.positive_definite(positive_definite);
        }
        if let Some(fields) = &self.fields {
            plan = plan.fields(fields);
        }
        plan
    }
}
