//! What was measured, as the tables of docs/compare.md.

use crate::{
    divergence,
    fault::Fault,
    judge::{Tally, grouped},
    layer::Kind,
    layers::{Draw, Rates, sum},
    number::Format,
    page::table,
    row_parallel, ties,
};
use std::collections::BTreeSet;

/// `bf16: 0 · 0.3 % · 1 % · 3 %`, the head of a column of four figures.
fn settings(format: Format) -> String {
    let percent = |noise: &f32| match noise * 100.0 {
        0.0 => "0".to_owned(),
        percent if percent < 0.01 => format!("{noise:e}"),
        percent => format!("{} %", (percent * 100.0).round() / 100.0),
    };
    format!("{}: {}", format.name(), format.settings().iter().map(percent).collect::<Vec<_>>().join(" · "))
}

fn joined(of: impl Iterator<Item = String>) -> String {
    of.collect::<Vec<_>>().join(" · ")
}

/// A row of four figures for each dtype.
fn row(name: &str, rates: &[Rates], figure: impl Fn(&Rates) -> String) -> Vec<String> {
    let of = |format| joined(rates.iter().filter(|r| r.format == format).map(&figure));
    std::iter::once(name.to_owned()).chain(Format::ALL.map(of)).collect()
}

fn header<'h>(what: &'h str, columns: &'h [String; 4]) -> [&'h str; 5] {
    let [a, b, c, d] = columns;
    [what, a, b, c, d]
}

/// False alarms by kind of layer.
pub(crate) fn correct(rates: &[Rates]) -> String {
    let columns = Format::ALL.map(settings);
    let mut rows: Vec<Vec<String>> = Kind::ALL
        .iter()
        .enumerate()
        .map(|(i, kind)| row(kind.name(), rates, |r| r.kinds[i].correct.alarms()))
        .collect();
    rows.push(row("all", rates, |r| r.correct().alarms()));
    table(&header("correct layer", &columns), &rows)
}

/// Misses by fault.
pub(crate) fn missed(rates: &[Rates]) -> String {
    let columns = Format::ALL.map(settings);
    let faults = Fault::ALL.iter().enumerate();
    let rows: Vec<_> = faults.map(|(i, fault)| row(fault.name(), rates, |r| r.fault(i).missed())).collect();
    table(&header("fault", &columns), &rows)
}

/// Misses by kind of layer.
pub(crate) fn missed_by_kind(rates: &[Rates]) -> String {
    let columns = Format::ALL.map(settings);
    let kinds = Kind::ALL.iter().enumerate();
    let of = |i: usize| move |r: &Rates| sum(r.kinds[i].faults.into_iter()).missed();
    let rows: Vec<_> = kinds.map(|(i, kind)| row(kind.name(), rates, of(i))).collect();
    table(&header("layer", &columns), &rows)
}

/// False alarms and misses where there are few rows.
pub(crate) fn few_rows(shapes: &[(Draw, Vec<Rates>)]) -> String {
    let columns = Format::ALL.map(settings);
    let rows: Vec<Vec<String>> = shapes
        .iter()
        .flat_map(|(draw, rates)| {
            let shape = format!("{} × {}", draw.tokens, draw.width);
            let faults = |r: &Rates| sum((0..Fault::ALL.len()).map(|i| r.fault(i))).missed();
            [
                row(&format!("{shape}, correct"), rates, |r| r.correct().alarms()),
                row(&format!("{shape}, faults missed"), rates, faults),
            ]
        })
        .collect();
    table(&header("rows × columns", &columns), &rows)
}

/// The row-parallel layer that must be right on every seed.
pub(crate) fn row_parallel(rates: &row_parallel::Rates, partials: [Tally; 3]) -> String {
    let rounding =
        |t: Tally| format!("ROUNDING {} of {}", t.pairs - t.different - t.suspect, grouped(t.pairs));
    let different = |t: Tally| format!("DIFFERENT {} of {}", t.different, grouped(t.pairs));
    let mut rows = vec![vec!["correct".to_owned(), rounding(rates.correct[0]), rounding(rates.correct[1])]];
    for (fault, [known, unknown]) in row_parallel::FAULTS.into_iter().zip(rates.faults) {
        rows.push(vec![fault.name().to_owned(), different(known), different(unknown)]);
    }
    for (ranks, tally) in [2, 4, 8].into_iter().zip(partials) {
        rows.push(vec![format!("correct, K = 8192 in {ranks} partials"), "".into(), rounding(tally)]);
    }
    table(&["bf16", "the taps before were identical", "no tap before"], &rows)
}

/// Routers, correct and with faults, by how many experts there are.
pub(crate) fn ties(rates: impl Fn(ties::Experts, Format, f32) -> ties::Rates) -> String {
    let noise = |format: Format| {
        let percents =
            ties::NOISE.map(|noise| if noise > 0.0 { format!("{} %", noise * 100.0) } else { "0".into() });
        format!("{}: {}", format.name(), percents.join(" · "))
    };
    let columns = ties::FORMATS.map(noise);
    let mut rows = Vec::new();
    for experts in ties::EXPERTS {
        let all = ties::FORMATS.map(|format| ties::NOISE.map(|noise| rates(experts, format, noise)));
        let of = |what: &str, figure: &dyn Fn(&ties::Rates) -> String| {
            let name = format!("{} of {}: {what}", experts.chosen, experts.all);
            std::iter::once(name).chain(all.iter().map(|rates| joined(rates.iter().map(figure)))).collect()
        };
        rows.push(of("correct, any tap", &|r| r.correct.alarms()));
        rows.push(of("correct, the ids", &|r| r.ids.alarms()));
        for (i, fault) in ties::Fault::ALL.into_iter().enumerate() {
            rows.push(of(fault.name(), &|r| r.faults[i].missed()));
        }
    }
    let [a, b] = &columns;
    table(&["router", a, b], &rows)
}

/// Whole models.
pub(crate) fn models(rates: &[(Format, divergence::Rates)]) -> String {
    let mut rows = vec![vec!["correct".to_owned()]];
    rows[0].extend(rates.iter().map(|(_, r)| r.correct.false_alarms()));
    let named = |n: &divergence::Named| format!("{} of {}", n.right, n.faults);
    let faults: BTreeSet<Fault> = rates.iter().flat_map(|(_, r)| r.faults.keys().copied()).collect();
    for fault in faults {
        let cell = |(_, r): &(Format, divergence::Rates)| r.faults.get(&fault).map_or("–".to_owned(), named);
        rows.push(std::iter::once(fault.name().to_owned()).chain(rates.iter().map(cell)).collect());
    }
    let totals: Vec<divergence::Named> =
        rates.iter().map(|(_, r)| divergence::Named::sum(r.faults.values())).collect();
    let mut total = |name: &str, cell: &dyn Fn(&divergence::Named) -> String| {
        rows.push(std::iter::once(name.to_owned()).chain(totals.iter().map(cell)).collect());
    };
    total("all faults: right tap named", &|n| {
        format!("{} of {} ({:.1} %)", n.right, n.faults, 100.0 * n.right as f64 / n.faults.max(1) as f64)
    });
    total("an earlier tap named · a later one", &|n| format!("{} · {}", n.earlier, n.later));
    total("none named (the right one SUSPECT)", &|n| {
        format!("{} ({})", n.faults - n.right - n.earlier - n.later, n.suspect)
    });
    let names: Vec<&str> =
        std::iter::once("32 layers").chain(rates.iter().map(|(format, _)| format.name())).collect();
    table(&names, &rows)
}
