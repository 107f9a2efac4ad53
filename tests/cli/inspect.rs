//! What `krysp inspect` prints about special matrices.

use super::*;

#[test]
fn inspect_claims_only_what_it_knows() {
    let folder = Folder::new("claims");
    // the Laplacian of a ring of 60 points minus 0.05: five negative eigenvalues, a positive diagonal
    let ring = |shift: f64| {
        let entries = (1..=60)
            .map(|i| format!("{i} {i} {}\n{} {} -1\n", 2.0 - shift, i.max(i % 60 + 1), i.min(i % 60 + 1)));
        let entries: String = entries.collect();
        format!("%%MatrixMarket matrix coordinate real symmetric\n60 60 120\n{entries}")
    };
    folder.write("helmholtz.mtx", &ring(0.05));
    folder.write("singular.mtx", &ring(0.0));
    folder.write("good.mtx", &ring(-1.0));
    let of = |file: &str| folder.run(&format!("krysp inspect {file}")).out;
    assert!(
        of("helmholtz.mtx").contains("definite    no: 55 positive and 5 negative eigenvalues, by LDLᵀ\n"),
        "{}",
        of("helmholtz.mtx")
    );
    assert!(of("singular.mtx").contains("definite    no: singular"), "{}", of("singular.mtx"));
    let good = of("good.mtx");
    assert!(
        good.contains("definite    yes: all eigenvalues are positive") && good.contains("about 5e0"),
        "{good}"
    );
    let json = folder.run("krysp inspect helmholtz.mtx --json").out;
    assert!(
        json.contains("\"positive_definite\": false") && json.contains("\"negative_eigenvalues\": 5"),
        "{json}"
    );
    // its factorization takes more multiplications than `inspect` spends
    folder.run("krysp generate p7_24 large.mtx");
    assert!(of("large.mtx").contains("no negative direction found in"), "{}", of("large.mtx"));
    folder.write("nan.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 1\n1 2 nan\n2 2 1\n");
    let nan = of("nan.mtx");
    assert!(nan.contains("1 entry infinite or NaN") && !nan.contains("not symmetric"), "{nan}");
    folder.write("pattern.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 2\n");
    assert!(of("pattern.mtx").contains("ones are used"));
    assert!(folder.run("krysp solve pattern.mtx").out.contains("ones are used"));
}

#[test]
fn a_histogram_shows_the_few_long_rows() {
    let folder = Folder::new("histogram");
    // 3999 rows of one entry, one row of 300 entries
    let long: String = (1..=300).map(|j| format!("1 {j} 1\n")).collect();
    let short: String = (2..=4000).map(|i| format!("{i} {i} 1\n")).collect();
    let head = "%%MatrixMarket matrix coordinate real general\n4000 4000 4299\n";
    folder.write("long.mtx", &format!("{head}{long}{short}"));
    assert_eq!(folder.run("krysp inspect long.mtx --histogram rows.png").code, 0);
    let picture = Picture::read(&folder.at("rows.png"));
    let bar = picture.pixels_of([0x00, 0x72, 0xb2], 0.9);
    assert!(bar > 1000, "the bar of one row has {bar} pixels");
}

#[test]
fn inspect_aligns_ten_candidates_and_more() {
    let ran = Folder::new("candidates").run("krysp inspect A.mtx");
    let number_ends = ran.out.lines().filter_map(|line| {
        let (number, _) = line.split_once(". ")?;
        number.trim().parse::<usize>().ok().map(|_| number.len())
    });
    let number_ends: Vec<usize> = number_ends.collect();
    assert!(number_ends.len() >= 10, "{}", ran.out);
    assert!(number_ends.iter().all(|end| *end == number_ends[0]), "{}", ran.out);
}
