//! Whatever a file, a layouts file or an argument says: what is wrong is said, and nothing panics, hangs or takes memory
//! that is not there.
//!
//! Each target makes what it reads of random bytes, so that a fuzzer can steer it: mostly what could be, with some of it
//! replaced. `cargo test` tries a second of each, `make fuzz` minutes; `cargo bolero test NAME` runs one under libFuzzer.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "hostile/choices.rs"]
mod choices;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/texts.rs"]
mod texts;

use capture_cli::{Comparison, Reading};
use capture_compare::{Access, Layouts, Options, Run, summary::summarise, transform::Transform};
use capture_core::{
    Dtype, Placements, Selection, digested, header, journal,
    manifest::Manifest,
    ranks::RankSet,
    select::{Globs, Plan, Subject},
    steps::Steps,
};
use choices::Choices;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fmt::{Debug, Display},
    fs,
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Far more than what is tried takes, on any machine.
const MOST_TIME: Duration = Duration::from_secs(30);
/// Of the whole process, however many threads it has.
const MOST_MEMORY: u64 = 2 << 30;

/// Tries inputs on a target.
macro_rules! fuzz {
    ($name:ident) => {
        #[test]
        fn $name() {
            let maximum = getrlimit(Resource::Data).maximum;
            setrlimit(Resource::Data, Rlimit { current: Some(MOST_MEMORY), maximum }).unwrap();
            bolero::check!().for_each(|input: &[u8]| {
                let begun = Instant::now();
                target::$name(input);
                assert!(begun.elapsed() < MOST_TIME, "took {:?}", begun.elapsed());
            });
        }
    };
}

fuzz!(bytes_of_a_file);
fuzz!(a_run);
fuzz!(two_runs);
fuzz!(a_checkpoint);
fuzz!(a_layouts_file);
fuzz!(any_text);

mod target {
    use super::*;

    /// Bytes as they come, as each kind of file.
    pub(super) fn bytes_of_a_file(input: &[u8]) {
        let _ = header::parse(input, input.len() as u64 + 8);
        let _ = journal::decode(input);
        let _ = digested::decode(input);
        let _ = Manifest::parse(input);
        let dir = TempDir::new().unwrap();
        for name in ["000000.safetensors", "000001.journal", "json", "stats.jsonl"] {
            fs::write(dir.path().join(format!("rank0.pid1-ab.{name}")), input).unwrap();
        }
        look_through(dir.path());
    }

    /// Headers, journals and manifests of one run.
    pub(super) fn a_run(input: &[u8]) {
        let dir = TempDir::new().unwrap();
        let mut choices = Choices::new(input);
        let tensors = files::tensors(&mut choices);
        files::run(&mut choices, dir.path(), &tensors);
        look_through(dir.path());
        compare(Comparison { run: dir.path().into(), ..Comparison::default() });
    }

    /// Two runs, of which one may be the noise run as well.
    pub(super) fn two_runs(input: &[u8]) {
        let (mut choices, dirs) = (Choices::new(input), [TempDir::new().unwrap(), TempDir::new().unwrap()]);
        let tensors = files::tensors(&mut choices);
        let [a, b] = dirs.each_ref().map(|dir| {
            files::run(&mut choices, dir.path(), &tensors);
            dir.path().to_owned()
        });
        let layouts = b.join("layouts.toml");
        fs::write(&layouts, texts::layouts(&mut choices)).unwrap();
        let layouts = if choices.is(50) { vec![layouts] } else { Vec::new() };
        let noise = choices.is(20).then(|| a.clone());
        let only_common = choices.is(30);
        let pair = *choices.of(&["step", "abs", "inputs"]);
        let pair = pair.parse().unwrap();
        compare(Comparison {
            run: a,
            run_b: Some(b),
            layouts,
            noise,
            only_common,
            pair,
            ..Comparison::default()
        });
    }

    /// A safetensors file of anyone's.
    pub(super) fn a_checkpoint(input: &[u8]) {
        let (mut choices, dirs) = (Choices::new(input), [TempDir::new().unwrap(), TempDir::new().unwrap()]);
        let [dir, run] = dirs.each_ref().map(TempDir::path);
        let tensors = files::tensors(&mut choices);
        files::checkpoint(&mut choices, dir, &tensors);
        files::run(&mut choices, run, &tensors);
        let checkpoint = Some(dir.to_owned());
        compare(Comparison { run: run.into(), checkpoint, ..Comparison::default() });
    }

    /// TOML as it might be meant.
    pub(super) fn a_layouts_file(input: &[u8]) {
        let text = texts::layouts(&mut Choices::new(input));
        let Ok(layouts) = Layouts::of_text(Path::new("layouts.toml"), &text) else { return };
        let taps = ["a", "b.q_proj", "läyers.0.w"];
        let _ = layouts.unmatched(&taps.map(str::to_owned));
        for tap in taps {
            let _ = layouts.transforms(&layouts.renamed(tap), None);
            let _ = (layouts.placement(tap), layouts.first_section(tap));
            for join in layouts.joins() {
                let _ = join.part(tap).map(|(_, captured)| join.whole(&captured));
            }
        }
    }

    /// Everything that is parsed by hand.
    pub(super) fn any_text(input: &[u8]) {
        let mut choices = Choices::new(input);
        round_trip::<Placements>(&texts::of(&mut choices, texts::PLACEMENT));
        round_trip::<Transform>(&texts::of(&mut choices, texts::TRANSFORM));
        let text = texts::of(&mut choices, texts::SELECTION);
        if let Ok(selection) = text.parse::<Selection>() {
            let subject = Subject { rank: Some(1), dtype: Some(Dtype::BF16), shape: &[5, 128], call: 3 };
            let _ = Plan::new(&selection, "a.b").decide(&selection, &subject);
        }
        let _ = text.parse::<Globs>().map(|globs| globs.matches("model.layers.0.q"));
        let text = texts::of(&mut choices, texts::NUMBERS);
        let _ = text.parse::<Steps>().map(|steps| (steps.contains(7), steps.next(7)));
        let _ = text.parse::<RankSet>();
    }
}

/// Text that parses prints as what it means, and that parses to the same.
fn round_trip<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(parsed) => assert_eq!(parsed.to_string().parse::<T>().ok(), Some(parsed), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads all that a run says it holds.
fn look_through(dir: &Path) {
    for access in [Access::Mapped, Access::Unmapped] {
        let Ok(run) = Run::open(dir, access) else { continue };
        for entry in &run.entries {
            assert_eq!(run.bytes(entry).unwrap().len() as u64, entry.n_bytes());
            let _ = (run.checksum(entry), summarise(&run, entry), entry.numel());
        }
    }
}

/// Compares as the command does, and prints in every way. Whether files are mapped makes no difference.
fn compare(mut comparison: Comparison) {
    let [mapped, unmapped] = [false, true].map(|no_mmap| {
        comparison.reading = Reading { no_mmap };
        let options = Options { details: true, ..Options::default() };
        let compared = comparison.compare(None, options, |_| ()).map_err(|error| error.to_string())?;
        let _ = (compared.text(true, true), compared.text(false, false), compared.page());
        Ok::<_, String>((compared.json(), compared.complaints(), compared.exit_status()))
    });
    assert_eq!(mapped, unmapped);
}
