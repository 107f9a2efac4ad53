//! Shares of the host and of machines in a product: saved, by measured times, within the memory of each machine.

use crate::host_and_gpus::{Split, machines, product, split, uneven, whole_product};
use crate::truth;
use krysp::host_and_gpus::{Measured, StandIn};
use krysp::partition::RowShares;
use krysp::testing::matrices;
use krysp::{Cg, Error, Gmres};

#[test]
fn saved_shares_give_the_same_bits() {
    let a = uneven();
    let b = matrices::vector(a.rows());
    let solve = |split: &Split| Gmres::new(split).preconditioner(split.jacobi().unwrap()).solve(&b).unwrap();
    let measured = Split::on_all(&machines(2), &a).unwrap();
    let of_lengths = RowShares::by_length_classes(&a, measured.shares().powers()).unwrap();
    let of_lengths = Split::with_shares(&machines(2), &a, &of_lengths).unwrap();
    for split in [measured, of_lengths] {
        let file = std::env::temp_dir().join(format!("krysp_shares_of_products_{}", std::process::id()));
        split.shares().save(&file).unwrap();
        let again = Split::with_shares(&machines(2), &a, &RowShares::load(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let [one, other] = [&split, &again].map(solve);
        assert!(one.report.converged());
        assert_eq!((one.x, one.report.history), (other.x, other.report.history));
    }
}

/// Estimated gain of shares by measured times: the longest part becomes a third shorter, but waits and exchanges
/// take half of the product.
#[test]
fn a_gain_is_a_fraction_of_the_whole_product() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let mut measured = split(&a, &[1.0, 1.0]).balance().unwrap();
    measured.members.iter_mut().for_each(|member| member.rows.nonzeros = 100);
    measured.seconds = vec![2.0, 1.0];
    measured.product = 4.0;
    assert!((measured.gain() - 1.0 / 6.0).abs() < 1e-12, "{}", measured.gain());
    // a product takes at least as long as its longest part
    measured.product = 1.0;
    assert!((measured.gain() - 1.0 / 3.0).abs() < 1e-12, "{}", measured.gain());
}

/// A machine without memory for its share gets as many rows as fit; the others get the rest.
#[test]
fn shares_fit_in_memory() {
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    let memory = 200_000;
    let machines = [StandIn::default().with_memory(memory), StandIn::default()];
    for host in [true, false] {
        let machines =
            if host { &machines[..] } else { &machines.clone().map(|machine| machine.with_bus(1e3)) };
        let split = if host { Split::on_all(machines, &a) } else { Split::new(machines, &a) }.unwrap();
        let entries: Vec<usize> = split.members().iter().map(|member| member.rows.nonzeros).collect();
        // while it is converted, a matrix is stored twice; a share is met to half a row
        assert!(entries[1] * 20 <= memory + 4 * 20 && entries[1] * 20 > memory / 2, "{split}");
        assert!((entries[0] > 0) == host && entries.iter().sum::<usize>() == a.nnz(), "{split}");
        assert_eq!(product(&split, &a), whole_product(&a));
    }
    let nowhere = Split::on_all(&[StandIn::default().with_memory(0)], &a).err();
    assert!(matches!(nowhere, Some(Error::Allocation { free: 0, .. })));
}

/// Estimates: a bus without bandwidth leaves the host without rows, and the table says when it would pay.
#[test]
fn a_host_that_does_not_pay_gets_no_rows() {
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let slow = [(); 2].map(|()| StandIn::default().with_bus(1e3));
    let alone = Split::new(&slow, &a).unwrap();
    println!("{alone}");
    assert_eq!(alone.members()[0].rows.rows, 0);
    assert_eq!(alone.shares().powers()[0], 0.0);
    assert!(alone.to_string().contains("The host would save time "), "{alone}");
    let all = Split::on_all(&slow, &a).unwrap();
    assert!(all.members().iter().all(|member| member.rows.rows > 0 && member.predicted.is_some()), "{all}");
    // memory that the matrix does not fit in needs the host; the part of the machine fits
    let parts = [all, alone, Split::new(&[StandIn::default().with_memory(1_000_000)], &a).unwrap()];
    assert!(parts[2].members()[0].rows.rows > 0, "{}", parts[2]);
    for split in &parts {
        let solution = Cg::new(split).preconditioner(split.jacobi().unwrap()).rtol(1e-10).solve(&b).unwrap();
        assert!(
            solution.report.converged() && truth::residual(&a, &solution.x, &b) <= 2e-10 * truth::norm(&b)
        );
        let entries: usize = split.members().iter().map(|member| member.rows.nonzeros).sum();
        assert_eq!(entries, a.nnz());
        let measured = split.balance().unwrap();
        println!("{measured}");
        let rows: Vec<usize> = measured.members.iter().map(|member| member.rows.rows).collect();
        assert!(rows.iter().zip(&measured.seconds).all(|(&rows, &seconds)| (rows > 0) == (seconds > 0.0)));
        assert!(measured.product > 0.0 && measured.gain() < 1.0);
        let moved = RowShares::by_nonzeros(&a, &measured.powers()).unwrap();
        assert!(moved.ranges().zip(rows).all(|(moved, rows)| moved.is_empty() == (rows == 0)));
    }
    assert_eq!(Split::new(&[], &a).unwrap().members().len(), 1);
}

/// The host repeats products with the first half of the rows four times; shares by measured times make up for
/// it.
#[test]
fn shares_move_towards_equal_times() {
    let a = matrices::stencil7(64).csr::<f64>().unwrap();
    let machines = machines(1);
    let measured = |powers: &[f64]| {
        let shares = RowShares::by_nonzeros(&a, powers).unwrap();
        let split = Split::with_shares(&machines, &a, &shares).unwrap();
        split.slowed(0, &(0..a.rows() / 2), 4).unwrap().balance().unwrap()
    };
    let ratio = |found: &Measured| found.seconds[0] / found.seconds[1];
    let mut found = measured(&[1.0, 1.0]);
    let uneven = ratio(&found);
    assert!(uneven > 2.0, "{found}");
    // other programs may disturb a measurement
    let even = (0..10).any(|_| {
        found = measured(&found.powers());
        (0.7..1.4).contains(&ratio(&found)) && found.members[0].rows.nonzeros < a.nnz() / 3
    });
    assert!(even, "{uneven}: {found}");
}
