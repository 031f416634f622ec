//! A view that is drawn anew, for as long as somebody looks.

use super::LiveError;
use crate::{Error, output::Output};
use console::Term;
use std::{
    io::{ErrorKind, IsTerminal as _, Write as _, stdout},
    thread::sleep,
    time::Duration,
};

/// How often a terminal is drawn, and a line written.
const REDRAW: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(1);

/// Draws what `frame` says again and again: on a terminal in place, as JSON an object a line. It ends with Ctrl-C,
/// which leaves the last frame where it is, or once nobody reads any more.
pub(crate) fn watch(json: bool, mut frame: impl FnMut() -> Result<Output, Error>) -> Result<Output, Error> {
    let terminal = (!json).then(Term::buffered_stdout);
    if terminal.is_some() && !stdout().is_terminal() {
        return Err(LiveError::NoTerminal.into());
    }
    let mut drawn = 0;
    loop {
        let output = frame()?;
        let written = match &terminal {
            Some(terminal) => draw(terminal, &output, &mut drawn),
            None => stdout().write_all(output.text.as_bytes()).and_then(|()| stdout().flush()),
        };
        match written {
            Ok(()) => sleep(if json { LINE } else { REDRAW }),
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(Output::text(String::new(), &[])),
            Err(e) => return Err(LiveError::Draw(e).into()),
        }
    }
}

/// In one write, so that nothing flickers. What does not fit the terminal is cut, as lines that wrap or scroll could not
/// be drawn over.
fn draw(terminal: &Term, output: &Output, drawn: &mut usize) -> std::io::Result<()> {
    let (height, width) = terminal.size_checked().map_or((24, 80), |(h, w)| (usize::from(h), usize::from(w)));
    let notes: String = output.notes.iter().map(|note| format!("{note}\n")).collect();
    let text = output.text.clone() + &notes;
    let frame = cut(&text, height.saturating_sub(1).max(1), width);
    terminal.move_cursor_up(*drawn)?;
    terminal.clear_to_end_of_screen()?;
    terminal.write_str(&frame)?;
    *drawn = frame.lines().count();
    terminal.flush()
}

fn cut(text: &str, height: usize, width: usize) -> String {
    let n_lines = text.lines().count();
    let shown = if n_lines > height { height - 1 } else { n_lines };
    let mut frame: String = text
        .lines()
        .take(shown)
        .map(|line| line.chars().take(width).chain(['\n']).collect::<String>())
        .collect();
    if n_lines > shown {
        frame += &format!("… {} more lines\n", n_lines - shown);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        assert_eq!(cut("ab\ncd\n", 2, 2), "ab\ncd\n");
        assert_eq!(cut("abc\ncd\nef\n", 2, 2), "ab\n… 2 more lines\n");
        assert_eq!(cut("", 1, 2), "");
    }
}
