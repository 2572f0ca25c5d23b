//! Standard output for data, and standard error for everything else.

use std::cell::RefCell;
use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use serde::Serialize;
use store::remote::Waits;
use store::{Error, Result, is_unseen};

use crate::ui::table::{Side, Table};
use crate::ui::{closed, names, naming, paint, remedy};

/// The version of the JSON schema. Under one number, fields may be added but never change their meaning. `cli/JSON.md`
/// has a sample of each object.
const SCHEMA: u32 = 1;

/// An object of `--json` with its schema version. Each line has one, so that lines can be parsed independently.
#[derive(Serialize)]
struct Marked<'v, V> {
    schema: u32,
    #[serde(flatten)]
    value: &'v V,
}

/// One object of `--json`, without the newline. Characters that a terminal would act on are escaped.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let schema = SCHEMA;
    let line = serde_json::to_string(&Marked { schema, value })?;
    if !line.contains(is_unseen) {
        return Ok(line);
    }
    let mut escaped = String::with_capacity(line.len() + 8);
    let mut units = [0; 2];
    for c in line.chars() {
        match is_unseen(c) {
            true => {
                let units = c.encode_utf16(&mut units).iter();
                escaped.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
            false => escaped.push(c),
        }
    }
    Ok(escaped)
}

/// A writer that escapes invisible characters: names of refs and messages may change the direction of a line. It keeps
/// control characters of the terminal, since tables are made of them.
struct Seen<'w> {
    to: &'w mut dyn Write,
    failed: Option<io::Error>,
}

impl Seen<'_> {
    fn write(to: &mut dyn Write, text: fmt::Arguments<'_>) -> io::Result<()> {
        let mut seen = Seen { to, failed: None };
        let written = seen.write_fmt(text);
        let failed = seen.failed.take();
        written.map_err(|error| failed.unwrap_or_else(|| io::Error::other(error)))
    }
}

impl fmt::Write for Seen<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_hidden = |c: char| !c.is_ascii() && !c.is_control() && store::is_unseen(c);
        let written = match !text.is_ascii() && text.contains(is_hidden) {
            false => self.to.write_all(text.as_bytes()),
            true => {
                let mut line = String::with_capacity(text.len());
                for c in text.chars() {
                    match is_hidden(c) {
                        true => line.extend(c.escape_default()),
                        false => line.push(c),
                    }
                }
                self.to.write_all(line.as_bytes())
            }
        };
        written.map_err(|error| {
            self.failed = Some(error);
            fmt::Error
        })
    }
}

/// The output of a verb.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    /// The store that was named on the command line.
    named: Option<String>,
    to: RefCell<BufWriter<Stdout>>,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            named: None,
            to: RefCell::new(BufWriter::with_capacity(64 << 10, io::stdout())),
        }
    }

    /// Lets the commands in notes and reports name this store.
    #[must_use]
    pub(crate) fn at(self, named: Option<String>) -> Self {
        Self { named, ..self }
    }

    /// The text, whose commands name the store that was named on the command line.
    pub(crate) fn named(&self, text: &impl Display) -> String {
        let text = text.to_string();
        match &self.named {
            Some(named) => naming::with_store(&text, named).into_owned(),
            None => text,
        }
    }

    /// Does that with all notes of a report.
    pub(crate) fn name_in(&self, notes: &mut [String]) {
        for note in notes {
            *note = self.named(note);
        }
    }

    /// Whether the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes data unchanged.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        check_open()?;
        self.to.borrow_mut().write_all(bytes).map_err(failed)
    }

    /// Writes text with its colours, if colours are on.
    pub(crate) fn coloured(&self, text: &str) -> Result<()> {
        self.finish()?;
        paint::answer(text).map_err(failed)
    }

    /// Writes one line of data for people.
    pub(crate) fn line(&self, text: impl Display) -> Result<()> {
        check_open()?;
        self.told(text)
    }

    fn told(&self, text: impl Display) -> Result<()> {
        let mut to = self.to.borrow_mut();
        Seen::write(&mut *to, format_args!("{text}\n")).map_err(failed)
    }

    /// Writes one object of data for machines, whole or not at all.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<()> {
        check_open()?;
        let line = json_line(value).map_err(|error| failed(error.into()))?;
        writeln!(self.to.borrow_mut(), "{line}").map_err(failed)
    }

    /// Writes a list that is short enough for a table: JSON lines for machines, rows of a table for people.
    pub(crate) fn list<L: Serialize, const N: usize>(
        &self,
        columns: &[(&'static str, Side); N],
        lines: impl Iterator<Item = L>,
        cells: impl Fn(&L) -> [String; N],
    ) -> Result<()> {
        let mut table = Table::new(columns);
        for line in lines {
            if self.json {
                self.json(&line)?
            } else {
                table.push(cells(&line))
            }
        }
        match (self.json, columns_of_terminal()) {
            (true, _) => Ok(()),
            (false, Some(columns)) => self.line(table.within(columns)),
            (false, None) => self.line(table),
        }
    }

    /// Writes the result, as JSON or as text.
    pub(crate) fn answer(&self, answer: &(impl Serialize + Display)) -> Result<()> {
        if self.json {
            self.json(answer)
        } else {
            self.line(answer)
        }
    }

    /// Writes what a verb did. With --quiet, only as JSON. People who closed standard output do not miss it.
    pub(crate) fn report(&self, report: &(impl Serialize + Display)) -> Result<()> {
        match (self.json, self.quiet) {
            (true, _) => self.json(report),
            (false, true) => Ok(()),
            (false, false) => self.told(self.named(report)),
        }
    }

    /// Prints a note to standard error, unless --quiet or --json is set.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet && !self.json {
            self.aside(text);
        }
    }

    /// Writes notes of the engine. Those that concern the work of others are written even with --quiet or `--json`.
    pub(crate) fn notes(&self, notes: &[store::Note]) {
        for note in notes {
            let text = remedy::note(note);
            match note.is_warning {
                true => self.warning(format_args!("warning: {text}")),
                false => self.note(format_args!("note: {text}")),
            }
        }
    }

    /// Writes what a verb did to standard error, because standard output belongs to a child command.
    pub(crate) fn report_aside(&self, report: &(impl Serialize + Display)) {
        match (self.json, json_line(report)) {
            (true, Ok(line)) => self.aside(line),
            _ => self.note(format_args!("note: {report}")),
        }
    }

    /// Prints a problem that does not end the verb, even with --quiet. With `--json`, the warning is one JSON line on
    /// standard error, like an error.
    pub(crate) fn warning(&self, text: impl Display) {
        if !self.json {
            return self.aside(text);
        }
        let text = self.named(&text);
        let text = text.strip_prefix("warning: ").unwrap_or(&text);
        // A string can always be serialized.
        let line = json_line(&serde_json::json!({ "warning": text }));
        self.aside(line.unwrap_or_default());
    }

    fn aside(&self, text: impl Display) {
        // Earlier output is printed first. If this flush fails, the final flush reports the error.
        let _told_later = self.to.borrow_mut().flush();
        for line in self.named(&text).lines() {
            // If standard error is closed, the warning is lost.
            let _unread = paint::aside(&(paint::line(&names::printable(line)) + "\n"));
        }
    }

    /// Prints long waits for the bucket at `url`, from any thread.
    pub(crate) fn waits(&self, url: &str) -> Waits {
        if self.quiet || self.json {
            return Waits::default();
        }
        let url = url.to_owned();
        Waits::told_to(move |seconds, path| {
            // A note that cannot be printed is lost.
            let _unread = writeln!(io::stderr(), "waiting {seconds} s for {path} of {url}");
        })
    }

    /// Asks a question on standard error, without a line break. Returns false, and asks nothing, if there is no
    /// terminal where somebody may answer, or if the output is for a machine.
    pub(crate) fn ask(&self, question: impl Display) -> bool {
        if self.json || !io::stdin().is_terminal() {
            return false;
        }
        // A person who cannot read the question will not type the right answer.
        let _unread = Seen::write(&mut io::stderr(), format_args!("{question}"));
        true
    }

    /// Flushes the buffer.
    pub(crate) fn finish(&self) -> Result<()> {
        self.to.borrow_mut().flush().map_err(failed)
    }
}

/// The width of standard output, if it is a terminal that reports one.
fn columns_of_terminal() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Fails if standard output was closed, so that what is asked for would get lost.
fn check_open() -> Result<()> {
    match closed::was_closed() {
        false => Ok(()),
        true => Err(failed(rustix::io::Errno::BADF.into())),
    }
}

fn failed(source: io::Error) -> Error {
    Error::io("write to", "standard output", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_does_nothing_to_a_terminal() {
        let name = "a\u{85}\u{2028}\u{202e}\u{e0001}\u{7f}\n\u{e9}";
        let line = json_line(&serde_json::json!({ "name": name })).unwrap();
        assert!(!line.contains(is_unseen), "{line:?}");
        assert!(line.contains('\u{e9}'), "{line}");
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back, serde_json::json!({ "schema": 1, "name": name }));
    }
}
