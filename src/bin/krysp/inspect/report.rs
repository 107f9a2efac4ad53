//! What is found of a matrix, as text and as JSON.

use super::{Found, OnDevice, buckets, recipe};
use crate::json::Json;
use crate::text::{self, bar, bold, line};
use krysp::plan::{Profile, Spectrum};

/// Characters of the longest bar.
const BAR: usize = 24;

impl Found {
    /// Prints everything, beside the picture of the entries.
    pub(super) fn print(&self, spy: &[String]) {
        let profile = &self.profile;
        println!("{}\n", bold(&self.file.display().to_string()));
        self.print_shape();
        print_lengths(profile);
        print_values(profile);
        if profile.rows == profile.cols {
            print_diagonal(profile);
            print_spectrum(profile);
        }
        println!();
        spy.iter().for_each(|line| println!("            {line}"));
        for device in &self.devices {
            println!();
            device.print();
        }
        println!();
        self.print_plan();
    }

    fn print_shape(&self) {
        let Profile { rows, cols, entries, zeros, .. } = self.profile;
        let mut shape = format!("{} x {}, {}", text::count(rows), text::count(cols), text::entries(entries));
        if zeros > 0 {
            shape += &format!(", {} of them zero", text::count(zeros));
        }
        line("matrix", &shape);
        if let Some([now, then]) = self.bandwidths {
            let renumbered = match then < now {
                true => format!("{} after renumbering", text::count(then)),
                false => "renumbering brings them no closer".into(),
            };
            line("bandwidth", &format!("{} from the diagonal at most, {renumbered}", text::count(now)));
        }
        if let Some(parts) = self.profile.parts.filter(|parts| parts.count > 1) {
            let largest = text::counted(parts.largest, "unknown");
            line(
                "parts",
                &format!("{} without connection, the largest of {largest}", text::count(parts.count)),
            );
        }
    }

    fn print_plan(&self) {
        let plan = match &self.plan {
            Ok(plan) => plan,
            Err(why) => return line("plan", why),
        };
        println!("{}", bold("plan        tried in this order until one converges"));
        for (at, candidate) in plan.iter().enumerate() {
            let name = format!("{} with {}", candidate.method, candidate.preconditioner);
            println!("  {}. {name:<22} {}", at + 1, text::wrapped(&candidate.reason, 28));
        }
        println!("\n{}", bold("to solve"));
        let command = recipe::command(&self.file, self.solves);
        println!("  {command}");
        if self.devices.len() > 1 {
            println!("  {command} --device gpu");
        }
        println!("\n{}", bold("in Rust"));
        recipe::rust(&self.file, self.solves).lines().for_each(|line| println!("  {line}"));
    }

    /// Names are those of Ginkgo's benchmarks where these have them.
    pub(super) fn json(&self) -> Json {
        let profile = &self.profile;
        let [min, q1, median, q3, max] = profile.lengths.map(Json::from);
        let mean = (profile.entries as f64 / profile.rows.max(1) as f64).into();
        let distribution =
            vec![("min", min), ("q1", q1), ("median", median), ("q3", q3), ("max", max), ("mean", mean)];
        let problem = Json::Object(vec![
            ("rows", profile.rows.into()),
            ("columns", profile.cols.into()),
            ("nonzeros", profile.entries.into()),
            ("row_distribution", Json::Object(distribution)),
        ]);
        let definite = match profile.spectrum {
            Some(Spectrum::Indefinite) => Json::Bool(false),
            Some(Spectrum::Positive { .. }) => Json::Bool(true),
            _ => Json::Null,
        };
        let condition = match profile.spectrum {
            Some(Spectrum::Positive { reach }) => Some(reach.ratio()),
            _ => None,
        };
        let structure = Json::Object(vec![
            ("explicit_zeros", profile.zeros.into()),
            ("not_finite", profile.not_finite.into()),
            ("empty_rows", profile.empty_rows.into()),
            ("empty_columns", profile.empty_cols.into()),
            ("symmetric", profile.is_symmetric().into()),
            ("off_diagonal", profile.off_diagonal.into()),
            ("mirrored_places", profile.mirrored.into()),
            ("mirrored_values", profile.symmetric.into()),
            ("zero_diagonal", profile.zero_diagonal.into()),
            ("negative_diagonal", profile.negative_diagonal.into()),
            ("weak_diagonal", profile.weak_diagonal.into()),
            ("dominant_rows", profile.dominant.into()),
            ("block_size", profile.block.into()),
            ("parts", profile.parts.map(|parts| parts.count).into()),
            ("bandwidth", self.bandwidths.map(|[now, _]| now).into()),
            ("bandwidth_renumbered", self.bandwidths.map(|[_, then]| then).into()),
            ("likely_positive_definite", definite),
            ("condition_at_least", condition.into()),
        ]);
        let devices: Vec<Json> = self.devices.iter().map(OnDevice::json).collect();
        let plan = self.plan.as_ref().map(|plan| {
            let named = |candidate: &krysp::plan::Candidate| {
                Json::Object(vec![
                    ("method", candidate.method.name().into()),
                    ("preconditioner", candidate.preconditioner.name().into()),
                    ("reason", candidate.reason.clone().into()),
                ])
            };
            Json::List(plan.iter().map(named).collect())
        });
        Json::Object(vec![
            ("filename", self.file.display().to_string().into()),
            ("problem", problem),
            ("structure", structure),
            ("devices", devices.into()),
            ("plan", plan.unwrap_or(Json::Null)),
            ("command", recipe::command(&self.file, self.solves).into()),
        ])
    }
}

fn print_lengths(profile: &Profile) {
    let [shortest, quarter, median, three_quarters, longest] = profile.lengths.map(text::count);
    let mut found =
        format!("{shortest} to {longest} entries, quartiles {quarter}, {median}, {three_quarters}");
    if profile.block > 1 {
        found += &format!("; blocks of {0} x {0}", profile.block);
    }
    line("rows", &found);
    let buckets = buckets(profile);
    let most = buckets.iter().map(|(_, rows)| *rows).max().unwrap_or(0).max(1) as f64;
    let width = buckets.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, rows) in buckets {
        // what is there is seen
        let share = if rows > 0 { (rows as f64 / most).max(1.0 / (8 * BAR) as f64) } else { 0.0 };
        line("", &format!("{name:>width$}  {:<BAR$} {}", bar(share, BAR), text::count(rows)));
    }
    for (number, what) in [(profile.empty_rows, "row"), (profile.empty_cols, "column")] {
        if number > 0 {
            line(
                "",
                &format!("{} without an entry other than zero: no full rank", text::counted(number, what)),
            );
        }
    }
}

fn print_values(profile: &Profile) {
    let of = |part: usize| text::share(part, profile.off_diagonal);
    if profile.is_symmetric() {
        line("values", "symmetric");
    } else if profile.rows == profile.cols {
        let (places, values) = (of(profile.mirrored), of(profile.symmetric));
        line(
            "values",
            &format!(
                "not symmetric: {places} of the places off the diagonal are mirrored, {values} of the values"
            ),
        );
    }
    let [least, most] = profile.row_scale;
    if most > 0.0 {
        line("scale", &format!("the largest entries of rows are from {least:.1e} to {most:.1e}"));
    }
    if profile.not_finite > 0 {
        line("", &format!("{} infinite or not a number", text::entries(profile.not_finite)));
    }
}

fn print_diagonal(profile: &Profile) {
    let mut found = vec![];
    let weak = profile.weak_diagonal.saturating_sub(profile.zero_diagonal);
    for (rows, what) in [
        (profile.zero_diagonal, "zero or missing"),
        (profile.negative_diagonal, "negative"),
        (weak, "weak, below a millionth of the row"),
    ] {
        if rows > 0 {
            found.push(format!("{} {what}", text::count(rows)));
        }
    }
    if found.is_empty() {
        found.push("positive".into());
    }
    let dominant = text::share(profile.dominant, profile.rows);
    line("diagonal", &format!("{}; {dominant} of the rows dominated by it", found.join(", ")));
}

fn print_spectrum(profile: &Profile) {
    match profile.spectrum {
        Some(Spectrum::Indefinite) => line("definite", "no: not positive definite"),
        Some(Spectrum::Positive { reach }) => {
            let condition = reach.ratio();
            line(
                "definite",
                &format!(
                    "likely positive definite; condition at least {condition:.0e}, scaled by the diagonal"
                ),
            );
        }
        _ => {}
    }
}

impl OnDevice {
    fn print(&self) {
        match &self.measured {
            None => {
                println!(
                    "{}",
                    bold(&format!("{:<15}    bytes   padding   a product costs as reading", self.name))
                );
                let least = self.foretold.first().map_or(1.0, |first| first.cost);
                let most = self.foretold.last().map_or(least, |last| last.cost).min(4.0 * least);
                for estimate in &self.foretold {
                    let (bytes, streamed) =
                        (text::bytes(estimate.bytes), text::bytes(estimate.cost as usize));
                    let bar = bar(estimate.cost / most, BAR);
                    let padding = format!("{:.1} %", 100.0 * estimate.padding);
                    let name = estimate.stored.format();
                    println!("  {name:<16}{bytes:>9} {padding:>9}  {streamed:>9} {bar}");
                }
            }
            Some((bandwidth, measured)) => {
                let reads = format!("{:.1} GB/s", bandwidth / 1e9);
                println!(
                    "{}",
                    bold(&format!(
                        "{:<11} bytes      convert    product   share of the {reads} that it reads",
                        self.name
                    ))
                );
                for one in measured {
                    let rate = one.bytes as f64 / one.product;
                    let (bytes, convert) = (text::bytes(one.bytes), text::seconds(one.conversion));
                    let (product, share) = (text::seconds(one.product), rate / bandwidth);
                    let bar = bar(share, BAR);
                    println!(
                        "  {:<14}{bytes:>10} {convert:>10} {product:>10}   {bar} {:.0} %",
                        one.format,
                        100.0 * share
                    );
                }
                if measured.iter().any(|one| one.bytes as f64 / one.product > *bandwidth) {
                    println!("  more than 100 %: caches hold a part, or padding is stored and not read");
                }
            }
        }
        if !self.unsuitable.is_empty() {
            println!("  not suited: {}", self.unsuitable.join(", "));
        }
    }

    fn json(&self) -> Json {
        let foretold = |estimate: &krysp::choice::Estimate| {
            Json::Object(vec![
                ("format", estimate.stored.format().into()),
                ("storage", estimate.bytes.into()),
                ("padding", estimate.padding.into()),
                ("streamed_bytes", estimate.cost.into()),
            ])
        };
        let measured = |one: &crate::formats::Measured| {
            Json::Object(vec![
                ("format", one.format.clone().into()),
                ("storage", one.bytes.into()),
                ("conversion_time", one.conversion.into()),
                ("time", one.product.into()),
            ])
        };
        let mut fields = vec![
            ("device", self.name.clone().into()),
            ("foretold", Json::List(self.foretold.iter().map(foretold).collect())),
        ];
        if let Some((bandwidth, all)) = &self.measured {
            fields.push(("bandwidth", (*bandwidth).into()));
            fields.push(("spmv", Json::List(all.iter().map(measured).collect())));
        }
        Json::Object(fields)
    }
}
