//! Wrappers of operators forward every operation, and no other type forwards operations itself.

use crate::layers::{root, sources};
use krysp::solvers::{Form, MultiVector, Result, ScalarOf, Wrapper};
use krysp::{HostSpace, HostVector, LinearOperator, Space};
use std::fs;
use std::sync::{Arc, Mutex};

/// An operator that notes which of its operations are called.
struct Probe {
    space: HostSpace<f64>,
    calls: Mutex<Vec<&'static str>>,
}

impl Probe {
    fn note(&self, name: &'static str) {
        self.calls.lock().unwrap().push(name);
    }
}

type Vectors = MultiVector<HostVector<f64>>;

#[deny(clippy::missing_trait_methods)]
impl LinearOperator for Probe {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        self.note("domain");
        &self.space
    }

    fn range(&self) -> &HostSpace<f64> {
        self.note("range");
        &self.space
    }

    fn apply(&self, _: &HostVector<f64>, _: &mut HostVector<f64>) -> Result<()> {
        self.note("apply");
        Ok(())
    }

    fn apply_dot(&self, _: &HostVector<f64>, _: &mut HostVector<f64>) -> Result<f64> {
        self.note("apply_dot");
        Ok(1.0)
    }

    fn residual(&self, _: &HostVector<f64>, _: &HostVector<f64>, _: &mut HostVector<f64>) -> Result<()> {
        self.note("residual");
        Ok(())
    }

    fn axpy_apply_dot(
        &self,
        _: &f64,
        _: &HostVector<f64>,
        _: &mut HostVector<f64>,
        _: &mut HostVector<f64>,
    ) -> Result<[f64; 2]> {
        self.note("axpy_apply_dot");
        Ok([2.0, 3.0])
    }

    fn apply_many(&self, _: &Vectors, _: &mut Vectors) -> Result<()> {
        self.note("apply_many");
        Ok(())
    }

    fn apply_dot_many(&self, x: &Vectors, _: &mut Vectors) -> Result<ScalarOf<Vectors>> {
        self.note("apply_dot_many");
        Ok(x.scalars_of_open([4.0]))
    }

    fn form(&self) -> Form<'_, HostVector<f64>> {
        self.note("form");
        Form::Identity
    }

    fn bytes(&self) -> usize {
        self.note("bytes");
        5
    }

    fn replays(&self) -> bool {
        self.note("replays");
        true
    }
}

/// A wrapper outside of the library.
struct Named<A>(A);

impl<A: LinearOperator> Wrapper for Named<A> {
    type Inner = A;

    fn inner(&self) -> &A {
        &self.0
    }
}

/// Names of the operations of [`LinearOperator`], from its source.
fn operations() -> Vec<String> {
    let text = fs::read_to_string(root().join("solvers/operator.rs")).unwrap();
    let body = text.split_once("pub trait LinearOperator").unwrap().1.split_once("\n}").unwrap().0;
    let names = body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
    names.map(String::from).collect()
}

/// Calls each operation once, in the order of the trait. The operator must be, or wrap, a [`Probe`].
fn call_all(a: &dyn LinearOperator<Vector = HostVector<f64>>) {
    let [x, mut y, mut r] = [(); 3].map(|()| HostSpace::new(2).zeros().unwrap());
    let many = || MultiVector::zeros(&HostSpace::new(2), 1).unwrap();
    assert_eq!([a.domain(), a.range()], [&HostSpace::new(2); 2]);
    a.apply(&x, &mut y).unwrap();
    assert_eq!(a.apply_dot(&x, &mut y).unwrap(), 1.0);
    a.residual(&x, &y, &mut r).unwrap();
    assert_eq!(a.axpy_apply_dot(&1.0, &x, &mut r, &mut y).unwrap(), [2.0, 3.0]);
    a.apply_many(&many(), &mut many()).unwrap();
    assert_eq!(*a.apply_dot_many(&many(), &mut many()).unwrap().column(0), 4.0);
    assert!(matches!(a.form(), Form::Identity));
    assert_eq!(a.bytes(), 5);
    assert!(a.replays());
}

#[test]
fn every_operation_reaches_the_wrapped_operator() {
    let probe = || Probe { space: HostSpace::new(2), calls: Mutex::default() };
    let expected = operations();
    assert!(expected.len() >= 11);
    let check = |name: &str, calls: &Mutex<Vec<_>>| assert_eq!(calls.lock().unwrap()[..], expected, "{name}");
    let [a, b, c, d, e] = [(); 5].map(|()| Arc::new(probe()));
    call_all(&&*a);
    check("&A", &a.calls);
    call_all(&b);
    check("Arc<A>", &b.calls);
    call_all(&Box::new(c.clone()));
    check("Box<A>", &c.calls);
    call_all(&Named(&*d));
    check("a wrapper of another crate", &d.calls);
    let boxed: Box<dyn LinearOperator<Vector = HostVector<f64>>> = Box::new(e.clone());
    call_all(&boxed);
    check("Box<dyn LinearOperator>", &e.calls);
}

/// Returns the bodies of functions `apply` that only call `apply` of a field with the same arguments.
fn forwarded_by_hand(text: &str) -> Vec<&str> {
    let mut found = vec![];
    for (_, function) in
        text.match_indices("\n    fn apply(&self, ").map(|(at, head)| (at, &text[at + head.len()..]))
    {
        let Some((head, body)) = function.split_once("{\n") else { continue };
        let names: Vec<&str> = head.split(": ").filter_map(|part| part.rsplit([' ', ',']).next()).collect();
        let (Some(first), Some((body, _))) = (names.first(), body.split_once("\n    }\n")) else { continue };
        let arguments = format!(".apply({first}, {})", names.get(1).copied().unwrap_or_default());
        let fields = body.trim().strip_suffix(&arguments).and_then(|left| left.strip_prefix("self."));
        if fields.is_some_and(|fields| fields.chars().all(|c| c.is_alphanumeric() || "_.".contains(c))) {
            found.push(body.trim());
        }
    }
    found
}

#[test]
fn no_operator_forwards_by_hand() {
    let by_hand = "impl A {\n    fn apply(&self, x: &V, y: &mut V) -> Result<()> {\n        self.a.apply(x, y)\n    }\n}";
    assert_eq!(forwarded_by_hand(by_hand), ["self.a.apply(x, y)"]);
    let mut files = vec![];
    ["src", "solvers", "python/src"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
    assert!(files.len() > 100);
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let found = forwarded_by_hand(&text);
        assert!(found.is_empty(), "{}: {found:?}: implement `Wrapper` instead", path.display());
    }
}
