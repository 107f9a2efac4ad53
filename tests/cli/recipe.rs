fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a = krysp::io::read_matrix::<f64>("A.mtx")?;
    let b = vec![1.0; a.rows()]; // yours
    let mut solver = krysp::Plan::new(&a)?.solves(100).build()?;
    let solved = solver.solve(&b)?; // as often as you like
    println!("{solved}");
    Ok(())
}
