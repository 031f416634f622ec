//! How often the verdict on floats is wrong: false alarms on correct results, and faults that it does not see. All of
//! it is computed from seeds, so that the figures are those of the code and not of a day.
//!
//!     make verdict-rates                     everything, into docs/compare.md
//!     cargo run --release -p capture-benches --example verdict-rates -- [NAME…] [--quick] [--write]
//!
//! Names are `layers`, `few-rows`, `row-parallel`, `models` and `ties`; `--quick` draws a few seeds only.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

mod random;
mod number;
mod matrix;
mod linear;
mod layer;
mod fault;
mod judge;
mod layers;
mod row_parallel;
mod model;
mod recorded;
mod divergence;
mod ties;
mod page;
mod tables;

use layers::{Draw, Rates};
use number::Format;
use std::{io, path::Path, process::ExitCode, time::Instant};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compare.md");
const NAMES: [&str; 5] = ["layers", "few-rows", "row-parallel", "models", "ties"];
const FORMATS_OF_MODELS: [Format; 3] = [Format::Bf16, Format::Fp16, Format::Fp32];

/// How much is drawn.
struct Extent {
    seeds: u64,
    layer: Draw,
    few_rows: Vec<Draw>,
    row_parallel: [row_parallel::Size; 2],
    models: u64,
    model: model::Size,
    ties: ties::Draw,
}

impl Extent {
    fn full() -> Self {
        let draw = |tokens, width| Draw { seeds: 200, tokens, inner: 512, width };
        let row_parallel = |inner| row_parallel::Size { tokens: 64, inner, width: 512 };
        Self {
            seeds: 200,
            layer: draw(64, 256),
            few_rows: vec![draw(1, 256), draw(2, 256), draw(3, 256), draw(5, 64)],
            row_parallel: [row_parallel(4096), row_parallel(8192)],
            models: 200,
            model: model::Size { layers: 32, tokens: 64, hidden: 256, heads: 8, inner: 768, vocabulary: 512 },
            ties: ties::Draw { seeds: 200, tokens: 64, inner: 512 },
        }
    }

    fn quick() -> Self {
        let draw = |tokens, width| Draw { seeds: 3, tokens, inner: 128, width };
        let row_parallel = |inner| row_parallel::Size { tokens: 16, inner, width: 64 };
        Self {
            seeds: 3,
            layer: draw(32, 64),
            few_rows: vec![draw(1, 64), draw(5, 64)],
            row_parallel: [row_parallel(512), row_parallel(1024)],
            models: 3,
            model: model::Size { layers: 3, tokens: 16, hidden: 64, heads: 2, inner: 128, vocabulary: 64 },
            ties: ties::Draw { seeds: 3, tokens: 32, inner: 128 },
        }
    }

    /// The tables of that name, each with the name of its marks in the page.
    fn tables(&self, name: &str) -> Vec<(&'static str, String)> {
        match name {
            "layers" => {
                let rates = all_settings(self.layer);
                let Draw { seeds, tokens, inner, width } = self.layer;
                let caption = |table| {
                    format!(
                        "{tokens} × {width}, K = {inner}, {seeds} seeds of each kind of layer.\n\n{table}"
                    )
                };
                vec![
                    ("correct", caption(tables::correct(&rates))),
                    ("missed", caption(tables::missed(&rates))),
                    ("missed-by-kind", caption(tables::missed_by_kind(&rates))),
                ]
            }
            "few-rows" => {
                let shapes: Vec<_> = self.few_rows.iter().map(|draw| (*draw, all_settings(*draw))).collect();
                let seeds = self.few_rows[0].seeds;
                let table = tables::few_rows(&shapes);
                vec![("few-rows", format!("{seeds} seeds of each kind of layer.\n\n{table}"))]
            }
            "row-parallel" => {
                let faults = row_parallel::faults(self.seeds, self.row_parallel[0]);
                let partials = row_parallel::partials(self.seeds, self.row_parallel[1]);
                let table = tables::row_parallel(&faults, partials);
                vec![("row-parallel", format!("{} seeds.\n\n{table}", self.seeds))]
            }
            "ties" => {
                let ties::Draw { seeds, tokens, .. } = self.ties;
                let table = tables::ties(|experts, format, noise| {
                    let rates = ties::measure(self.ties, experts, format, noise);
                    let remarks = rates.remarks.iter();
                    remarks.for_each(|remark| println!("{} noise {noise}: correct, {remark}", format.name()));
                    rates
                });
                vec![("ties", format!("{tokens} tokens, {seeds} seeds.\n\n{table}"))]
            }
            _ => {
                let rates = FORMATS_OF_MODELS.map(|format| {
                    let rates = divergence::measure(self.models, self.model, format);
                    rates.remarks.iter().for_each(|remark| println!("{} {remark}", format.name()));
                    (format, rates)
                });
                let table = tables::models(&rates);
                vec![("models", format!("{} models of each dtype.\n\n{table}", self.models))]
            }
        }
    }
}

fn all_settings(draw: Draw) -> Vec<Rates> {
    let mut all = Vec::new();
    for format in Format::ALL {
        for noise in format.settings() {
            let rates = layers::measure(draw, format, noise);
            for alarm in rates.kinds.iter().flat_map(|kind| &kind.alarms) {
                println!(
                    "{} × {} {} noise {noise}: correct, {alarm}",
                    draw.tokens,
                    draw.width,
                    format.name()
                );
            }
            all.push(rates);
        }
    }
    all
}

fn main() -> ExitCode {
    let (options, mut names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let odd = options.iter().find(|o| !["--quick", "--write"].contains(&o.as_str()));
    if let Some(odd) = odd.or_else(|| names.iter().find(|name| !NAMES.contains(&name.as_str()))) {
        eprintln!("expected --quick, --write or names among {}, found {odd:?}", NAMES.join(", "));
        return ExitCode::from(2);
    }
    let has = |option: &str| options.iter().any(|o| o == option);
    let extent = if has("--quick") { Extent::quick() } else { Extent::full() };
    if names.is_empty() {
        names = NAMES.map(str::to_owned).into();
    }
    for name in &names {
        let start = Instant::now();
        for (mark, table) in extent.tables(name) {
            println!("\n{mark}\n{table}");
            let written: io::Result<()> =
                if has("--write") { page::write(Path::new(PAGE), mark, &table) } else { Ok(()) };
            if let Err(error) = written {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        }
        println!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn correct_layers_pass_and_swapped_heads_do_not() {
        for format in Format::ALL {
            let rates = layers::measure(Extent::quick().layer, format, 0.0);
            assert_eq!((rates.correct().different, rates.correct().pairs), (0, 30));
            let swapped = rates.fault(Fault::HeadsSwapped as usize);
            assert_eq!((swapped.different, swapped.pairs), (30, 30), "{}", format.name());
        }
    }

    #[test]
    fn a_correct_router_is_never_different() {
        for experts in ties::EXPERTS {
            let rates = ties::measure(Extent::quick().ties, experts, Format::Bf16, 0.01);
            assert_eq!((rates.correct.pairs, rates.correct.different), (3, 0), "{experts:?}");
            let offset = rates.faults[ties::Fault::Offset as usize];
            assert_eq!((offset.pairs, offset.different), (3, 3), "{experts:?}");
        }
    }

    #[test]
    fn models_are_compared_as_runs() {
        let extent = Extent::quick();
        let rates = divergence::measure(extent.models, extent.model, Format::Bf16);
        assert_eq!((rates.correct.pairs, rates.correct.different), (60, 0));
        let named = divergence::Named::sum(rates.faults.values());
        assert!(named.right > named.faults / 2 && named.earlier == 0, "{named:?} {:?}", rates.remarks);
    }
}
