//! `krysp check`.

use super::folder::Folder;

#[test]
fn check_compares_every_format_with_a_plain_loop() {
    let folder = Folder::new("check");
    let ran = folder.run("krysp check A.mtx --device cpu");
    assert!(ran.code == 0 && ran.out.contains("checks, all ok"), "{}{}", ran.out, ran.err);
    for format in ["Csr", "Dia", "Sell", "Ell", "EllpackR", "Hyb", "Coo", "Ehyb", "SymCsr", "Halo"] {
        for element in ["f64", "f32"] {
            let line = format!("{:<25}product       ", format!("{format} on cpu, {element}"));
            assert!(
                ran.out.lines().any(|found| found.starts_with(&line) && found.ends_with("ok")),
                "{format}: {}",
                ran.out
            );
        }
    }
    let one = folder.run("krysp check tests/data/jpwh_991.mtx.gz --format sell-p --device cpu");
    assert!(one.code == 0 && one.out.ends_with("22 checks, all ok\n"), "{}{}", one.out, one.err);
    // entries of opposite triangles differ by rounding
    let rounded = folder.run("krysp generate elast4 E.mtx && krysp check E.mtx --device cpu");
    assert!(rounded.code == 0 && rounded.out.contains("checks, all ok"), "{}{}", rounded.out, rounded.err);
    for format in ["SymCsr", "SymBsr"] {
        let line = format!("{:<25}product       ", format!("{format} on cpu, f64"));
        assert!(rounded.out.lines().any(|found| found.starts_with(&line)), "{format}: {}", rounded.out);
    }
    assert_eq!(folder.run("krysp check A.mtx --format best").code, 2);
    assert_eq!(folder.run("krysp check tests/data/jpwh_991.mtx.gz --format symcsr --device cpu").code, 2);
}
