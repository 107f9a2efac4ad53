//! The results of `krysp inspect` as text and as JSON.

use super::{Found, OnDevice, buckets, recipe};
use crate::files;
use crate::json::Json;
use crate::text::{self, bar, bold, line, say};
use krysp::Inertia;
use krysp::plan::{Profile, Spectrum};

/// Length of the longest bar in characters.
const BAR: usize = 24;

impl Found {
    /// Prints the report, with the plot of the sparsity pattern `spy` in its middle.
    pub(super) fn print(&self, spy: &[String]) {
        let profile = &self.profile;
        say(&format!("{}\n", bold(&files::shown(&self.file))));
        self.print_shape();
        if self.is_pattern {
            line("", files::ONES);
        }
        print_lengths(profile);
        print_values(profile);
        if profile.rows == profile.cols {
            print_diagonal(profile);
            print_spectrum(profile, self.inertia);
        }
        say("");
        spy.iter().for_each(|line| say(&format!("            {line}")));
        for device in &self.devices {
            say("");
            device.print();
        }
        say("");
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
            let reordered = match then < now {
                true => format!("{} after reordering (RCM)", text::count(then)),
                false => "no less after reordering (RCM)".into(),
            };
            line("bandwidth", &format!("{}, {reordered}", text::count(now)));
        }
        if let Some(parts) = self.profile.connected_components.filter(|parts| parts.count > 1) {
            let largest = text::counted(parts.largest, "unknown");
            let count = text::count(parts.count);
            line("components", &format!("{count} connected components, the largest has {largest}"));
        }
    }

    fn print_plan(&self) {
        let plan = match &self.plan {
            Ok(plan) => plan,
            Err(why) => return line("plan", why),
        };
        say(&bold("plan        candidates; the cheapest by estimate runs next"));
        let digits = plan.len().to_string().len();
        for (at, candidate) in plan.iter().enumerate() {
            let name = format!("{} with {}", candidate.method, candidate.preconditioner);
            let reason = text::wrapped(&candidate.reason, 27 + digits);
            say(&format!("  {:>digits$}. {name:<22} {reason}", at + 1));
        }
        say(&format!("\n{}", bold("to solve")));
        let command = recipe::command(&self.file, self.solves);
        say(&format!("  {command}"));
        if self.devices.len() > 1 {
            say(&format!("  {command} --device gpu"));
        }
        say(&format!("\n{}", bold("in Rust")));
        recipe::rust(&self.file, self.solves).lines().for_each(|line| say(&format!("  {line}")));
    }

    /// The report as JSON. Field names follow Ginkgo's benchmarks where possible.
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
        let definite = match (self.inertia, profile.spectrum) {
            (Some(inertia), _) => Json::Bool(inertia.negative == 0),
            (None, Some(Spectrum::Indefinite)) => Json::Bool(false),
            _ => Json::Null,
        };
        let steps = match profile.spectrum {
            Some(Spectrum::Positive { steps, .. }) => Some(steps),
            _ => None,
        };
        // the ratio of positive Ritz values says nothing about an indefinite matrix
        let definite_or_unknown = self.inertia.is_none_or(|inertia| inertia.negative == 0);
        let spectrum = profile.spectrum.filter(|_| definite_or_unknown);
        let condition = spectrum.and_then(|spectrum| spectrum.condition());
        let structure = Json::Object(vec![
            ("explicit_zeros", profile.zeros.into()),
            ("not_finite", profile.not_finite.into()),
            ("empty_rows", profile.empty_rows.into()),
            ("empty_columns", profile.empty_cols.into()),
            ("pattern_file", self.is_pattern.into()),
            ("symmetric", (profile.not_finite == 0).then(|| profile.is_symmetric()).into()),
            ("off_diagonal", profile.off_diagonal.into()),
            ("pattern_symmetry_entries", profile.mirrored.into()),
            ("numerical_symmetry_entries", profile.symmetric.into()),
            ("zero_diagonal", profile.zero_diagonal.into()),
            ("negative_diagonal", profile.negative_diagonal.into()),
            ("weak_diagonal", profile.weak_diagonal.into()),
            ("dominant_rows", profile.dominant.into()),
            ("block_size", profile.block.into()),
            ("connected_components", profile.connected_components.map(|parts| parts.count).into()),
            ("bandwidth", self.bandwidths.map(|[now, _]| now).into()),
            ("bandwidth_rcm", self.bandwidths.map(|[_, then]| then).into()),
            ("positive_definite", definite),
            ("negative_eigenvalues", self.inertia.map(|inertia| inertia.negative).into()),
            ("lanczos_steps_without_negative_direction", steps.into()),
            ("condition_scaled_by_diagonal", condition.into()),
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
        // a range of lengths with few rows still has a visible bar
        let share = if rows > 0 { (rows as f64 / most).max(1.0 / (8 * BAR) as f64) } else { 0.0 };
        line("", &format!("{name:>width$}  {:<BAR$} {}", bar(share, BAR), text::count(rows)));
    }
    for (number, what) in [(profile.empty_rows, "row"), (profile.empty_cols, "column")] {
        if number > 0 {
            line("", &format!("{} without nonzero entries: rank deficient", text::counted(number, what)));
        }
    }
}

fn print_values(profile: &Profile) {
    let of = |part: usize| text::share(part, profile.off_diagonal);
    if profile.not_finite > 0 {
        let entries = text::entries(profile.not_finite);
        let unknown = if profile.rows == profile.cols { "; symmetry not examined" } else { "" };
        line("values", &format!("{entries} infinite or NaN{unknown}"));
    } else if profile.is_symmetric() {
        line("values", "symmetric");
    } else if profile.rows == profile.cols {
        let (places, values) = (of(profile.mirrored), of(profile.symmetric));
        line(
            "values",
            &format!(
                "not symmetric: {places} of the off-diagonal positions are symmetric, {values} of the values"
            ),
        );
    }
    let [least, most] = profile.row_scale;
    if most > 0.0 {
        line("scale", &format!("the largest entry of a row is between {least:.1e} and {most:.1e}"));
    }
}

fn print_diagonal(profile: &Profile) {
    let mut found = vec![];
    let weak = profile.weak_diagonal.saturating_sub(profile.zero_diagonal);
    for (rows, what) in [
        (profile.zero_diagonal, "zero or missing"),
        (profile.negative_diagonal, "negative"),
        (weak, "below a millionth of the largest entry of the row"),
    ] {
        if rows > 0 {
            found.push(format!("{} {what}", text::count(rows)));
        }
    }
    if found.is_empty() {
        found.push("positive".into());
    }
    let dominant = text::share(profile.dominant, profile.rows);
    line("diagonal", &format!("{}; dominant in {dominant} of the rows", found.join(", ")));
}

fn print_spectrum(profile: &Profile, inertia: Option<Inertia>) {
    let definite = match (inertia, profile.spectrum) {
        (Some(Inertia { negative: 0, .. }), _) => "yes: all eigenvalues are positive, by LDLᵀ".into(),
        (Some(inertia), _) => format!("no: {}, by LDLᵀ", text::inertia(inertia)),
        (None, Some(Spectrum::Indefinite)) => "no: not positive definite".into(),
        (None, Some(Spectrum::Singular)) => {
            "no: singular to rounding, ⟨p, A p⟩ = 0 in some direction p".into()
        }
        (None, Some(Spectrum::Positive { steps, .. })) => {
            format!("no negative direction found in {steps} Lanczos steps")
        }
        _ => return,
    };
    line("definite", &definite);
    if inertia.is_some_and(|inertia| inertia.negative > 0) {
        return;
    }
    if let Some(spectrum @ Spectrum::Positive { steps, .. }) = profile.spectrum {
        let condition = match spectrum.condition() {
            Some(condition) => format!("about {condition:.0e} after diagonal scaling, by Lanczos"),
            None => format!("unknown: the Ritz values had not converged after {steps} Lanczos steps"),
        };
        line("condition", &condition);
    }
}

impl OnDevice {
    fn print(&self) {
        match &self.measured {
            None => {
                say(&bold(&format!("{:<15}    bytes   padding   estimated cost of an SpMV", self.name)));
                let least = self.estimates.first().map_or(1.0, |first| first.cost);
                let most = self.estimates.last().map_or(least, |last| last.cost).min(4.0 * least);
                for estimate in &self.estimates {
                    let (bytes, streamed) =
                        (text::bytes(estimate.bytes), text::bytes(estimate.cost as usize));
                    let bar = bar(estimate.cost / most, BAR);
                    let padding = format!("{:.1} %", 100.0 * estimate.padding);
                    let name = estimate.stored.format();
                    say(&format!("  {name:<16}{bytes:>9} {padding:>9}  {streamed:>9} {bar}"));
                }
            }
            Some((bandwidth, measured)) => {
                let reads = format!("{:.1} GB/s", bandwidth / 1e9);
                say(&bold(&format!(
                    "{:<11} bytes      convert       SpMV   fraction of the bandwidth, {reads}",
                    self.name
                )));
                for one in measured {
                    let rate = one.bytes as f64 / one.product;
                    let (bytes, convert) = (text::bytes(one.bytes), text::seconds(one.conversion));
                    let (product, share) = (text::seconds(one.product), rate / bandwidth);
                    let bar = bar(share, BAR);
                    let (format, percent) = (&one.format, 100.0 * share);
                    let figures = format!("{bytes:>10} {convert:>10} {product:>10}");
                    say(&format!("  {format:<14}{figures}   {bar} {percent:.0} %"));
                }
                if measured.iter().any(|one| one.bytes as f64 / one.product > *bandwidth) {
                    say("  more than 100 %: data is in cache, or padding is stored but not read");
                }
            }
        }
        if !self.unsuitable.is_empty() {
            say(&format!("  not suitable: {}", self.unsuitable.join(", ")));
        }
    }

    fn json(&self) -> Json {
        let estimated = |estimate: &krysp::choice::Estimate| {
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
            ("estimated", Json::List(self.estimates.iter().map(estimated).collect())),
        ];
        if let Some((bandwidth, all)) = &self.measured {
            fields.push(("bandwidth", (*bandwidth).into()));
            fields.push(("spmv", Json::List(all.iter().map(measured).collect())));
        }
        Json::Object(fields)
    }
}
