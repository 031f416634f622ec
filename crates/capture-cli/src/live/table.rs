//! Live processes as a table that fits a terminal.

use super::process::Seen;
use crate::{
    number,
    output::{lines, table},
    run::printable,
};
use capture_core::{answer::State, name::tensor_key};
use comfy_table::{Cell, CellAlignment};

/// Columns, in order.
const COLUMNS: [&str; 9] = ["rank", "mesh", "pid", "state", "step", "last tap", "ago", "records", "bytes"];
/// Columns that a narrow terminal does without, the first to go first.
const DISPENSABLE: [&str; 2] = ["records", "mesh"];
const LAST_TAP: usize = 5;
/// A tap's name is cut down to this before a column goes.
const SHORT_TAP: usize = 24;

type Row = [String; COLUMNS.len()];

/// How wide the terminal is, where there is one.
pub(crate) fn width() -> Option<usize> {
    table(&[]).width().map(usize::from)
}

/// A row for each process, by rank, at most so wide.
pub(crate) fn rows(processes: &[&Seen], width: Option<usize>, now_ns: u64) -> String {
    let mut processes = processes.to_vec();
    // Unknown ranks last.
    processes.sort_by_key(|seen| (seen.answer.rank.is_none(), seen.answer.rank, seen.answer.pid));
    let mut rows: Vec<Row> = processes.iter().map(|seen| row(seen, now_ns)).collect();
    let columns = fit(&mut rows, width);
    let mut table = table(&columns.iter().map(|c| COLUMNS[*c]).collect::<Vec<_>>());
    if let Some(width) = width.and_then(|width| u16::try_from(width).ok()) {
        // The padding at both ends is taken off again.
        table.set_width(width + 2);
    }
    for row in rows {
        table.add_row(columns.iter().map(|c| Cell::new(&row[*c])));
    }
    for (at, column) in columns.iter().enumerate() {
        if let ("step" | "ago" | "records" | "bytes", Some(column)) = (COLUMNS[*column], table.column_mut(at))
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
}

fn row(seen: &Seen, now_ns: u64) -> Row {
    let answer = &seen.answer;
    let state = match seen {
        Seen { gone: true, .. } => "gone",
        Seen { stopped: true, .. } => "stopped",
        _ => answer.state.as_str(),
    };
    let places = answer.mesh.dims.iter().filter(|dim| dim.size > 1);
    let mesh: Vec<String> = places.map(|dim| format!("{}{}", dim.name, dim.coord)).collect();
    let tap = seen.last_tap.as_ref();
    let has_run = answer.state != State::Off;
    let counted = |text: String| if has_run { text } else { String::new() };
    [
        answer.rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string()),
        printable(&mesh.join(" ")),
        answer.pid.to_string(),
        state.to_owned(),
        seen.steps.to_string(),
        tap.map_or_else(String::new, |tap| printable(&tensor_key(&tap.tap, tap.step, tap.call))),
        tap.map_or_else(String::new, |tap| number::span(now_ns.saturating_sub(tap.time_ns))),
        counted(answer.counters.records.to_string()),
        counted(number::bytes(answer.counters.bytes)),
    ]
}

/// Cuts taps and leaves columns out until the rows fit; the columns that stay. One that is empty goes in any case.
fn fit(rows: &mut [Row], width: Option<usize>) -> Vec<usize> {
    let is_empty = |c: &usize| rows.iter().all(|row| row[*c].is_empty());
    let mut kept: Vec<usize> = (0..COLUMNS.len()).filter(|c| !is_empty(c)).collect();
    let Some(width) = width else { return kept };
    for dispensable in DISPENSABLE.into_iter().map(Some).chain([None]) {
        let of = |c: &usize| {
            let cells = rows.iter().map(|row| row[*c].chars().count()).max();
            cells.unwrap_or(0).max(COLUMNS[*c].len())
        };
        // Two spaces between columns.
        let all: usize = kept.iter().map(|c| of(c) + 2).sum::<usize>().saturating_sub(2);
        let too_much = all.saturating_sub(width);
        if too_much == 0 || !kept.contains(&LAST_TAP) {
            break;
        }
        let room = of(&LAST_TAP).saturating_sub(too_much);
        if room >= SHORT_TAP || dispensable.is_none() {
            rows.iter_mut().for_each(|row| row[LAST_TAP] = cut_middle(&row[LAST_TAP], room.max(8)));
            break;
        }
        kept.retain(|c| Some(COLUMNS[*c]) != dispensable);
    }
    kept
}

/// A name's beginning says where in the model it is, its end what it is.
fn cut_middle(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let front = (most - 1) / 2;
    let back = most - 1 - front;
    name.chars().take(front).chain(['…']).chain(name.chars().skip(length - back)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::process::Tap;
    use capture_core::{Answer, Mesh, manifest::Counters};

    fn seen(rank: Option<u32>, state: State) -> Seen {
        let mesh = rank.map_or_else(Mesh::default, |rank| Mesh::from_sizes("pp=2,dp=1,tp=4", rank).unwrap());
        let counters = Counters { records: 1204, bytes: 3_435_973_837, ..Counters::default() };
        let answer =
            Answer { rank, pid: 4_194_300 + rank.unwrap_or(9), state, mesh, counters, ..Answer::default() };
        let last_tap = (state == State::Capturing).then(|| Tap {
            tap: "model.layers.31.self_attn.o_proj.partial".into(),
            step: 12,
            call: 1,
            time_ns: 1_000_000_000,
        });
        Seen { answer, steps: 1_234_567, last_tap, ..Seen::default() }
    }

    #[track_caller]
    fn check(processes: &[Seen], width: Option<usize>, text: &str) {
        let found = rows(&processes.iter().collect::<Vec<_>>(), width, 3_400_000_000);
        assert_eq!(found, text);
        assert!(width.is_none_or(|width| found.lines().all(|line| line.chars().count() <= width)));
    }

    #[test]
    fn rows_fit_a_terminal() {
        let all = [
            seen(None, State::Off),
            seen(Some(5), State::Capturing),
            Seen { stopped: true, ..seen(Some(0), State::Capturing) },
        ];
        let wide = "\
rank  mesh     pid      state         step  last tap                                           ago  records    bytes
0     pp0 tp0  4194300  stopped    1234567  step12/model.layers.31.self_attn.o_proj.partial#1  2 s     1204  3.2 GiB
5     pp1 tp1  4194305  capturing  1234567  step12/model.layers.31.self_attn.o_proj.partial#1  2 s     1204  3.2 GiB
?              4194309  off        1234567
";
        check(&all, None, wide);
        check(&all, Some(120), wide);
        let narrow = "\
rank  pid      state         step  last tap                         ago    bytes
0     4194300  stopped    1234567  step12/model.la…_proj.partial#1  2 s  3.2 GiB
5     4194305  capturing  1234567  step12/model.la…_proj.partial#1  2 s  3.2 GiB
?     4194309  off        1234567
";
        check(&all, Some(80), narrow);
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        check(
            &[seen(None, State::Off)],
            Some(80),
            "rank  pid      state     step\n?     4194309  off    1234567\n",
        );
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(cut_middle("abcdefgh", 8), "abcdefgh");
        assert_eq!(cut_middle("abcdefghi", 8), "abc…fghi");
        assert_eq!(cut_middle("äöüäöüäöü", 4), "ä…öü");
    }
}
