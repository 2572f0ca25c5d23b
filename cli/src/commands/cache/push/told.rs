//! The messages and the report of a push.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use store::{Error, Globs, Result};

use super::PushReport;
use crate::commands::cache::tell_refused;
use crate::context::Context;
use crate::ui::{human, names};

impl PushReport {
    pub(in crate::commands::cache) fn tell(&self, context: &Context) {
        for note in &self.notes {
            context.out.note(format_args!("note: {note}"));
        }
        if let Some(denied) = &self.denied {
            let later = match self.is_noted {
                true => "; `store save --pending` pushes it when that is possible",
                false => "",
            };
            context.out.warning(format_args!(
                "warning: {}: nothing was pushed, and what was compiled stays in {}: {denied}{later}",
                self.target,
                names::shown(self.directory.as_os_str().as_bytes())
            ));
        }
        tell_refused(&self.refused, context);
        for secret in &self.secrets {
            context.out.warning(format_args!(
                "skipped: {}: looks like credentials: {}; its entry is kept out",
                secret.file.shown(),
                secret.kind
            ));
        }
        for conflict in &self.conflicts {
            context.out.warning(format_args!(
                "conflict: {}: the ref has another one; it stays, and yours is kept out",
                conflict.shown()
            ));
        }
    }

    /// The command that does `verb` with the same directory and ref.
    fn command(&self, verb: &str) -> String {
        let directory = self.directory.to_string_lossy();
        format!(
            "store cache --profile {} {verb} {} {}",
            names::quoted(&self.profile),
            names::quoted(&directory),
            names::quoted(&self.target)
        )
    }

    pub(in crate::commands::cache) fn outcome(&self) -> Result<()> {
        let (conflicts, secrets) = (self.conflicts.len() as u64, self.secrets.len() as u64);
        let hint = match (conflicts, self.secrets.first()) {
            (0, None) => return Ok(()),
            (_, Some(secret)) => format!(
                "if it holds no credentials, `{}{} --allow-secret {}` takes it",
                self.command("push"),
                if self.is_public { " --public" } else { "" },
                names::quoted(&Globs::escape(&secret.file.shown()))
            ),
            (_, None) => format!(
                "see what is different with `{}`, or delete yours",
                self.command("status")
            ),
        };
        Err(Error::partial(format!(
            "{}: {} kept out",
            self.target,
            human::counted(conflicts + secrets, "entry")
        ))
        .hint(hint))
    }
}

impl fmt::Display for PushReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(out, "{}@{version}: ", self.target)?,
            None => write!(out, "{}: ", self.target)?,
        }
        write!(
            out,
            "{} {}, {} there before",
            human::counted(self.pushed, "entry"),
            if self.dry_run {
                "would be pushed"
            } else {
                "pushed"
            },
            human::count(self.same)
        )?;
        if self.healed > 0 {
            write!(
                out,
                ", {} stored again, whose bytes were lost",
                human::count(self.healed)
            )?;
        }
        let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
        for one in &self.refused {
            *refused.entry(one.state.word()).or_default() += 1;
        }
        for (word, count) in refused {
            write!(out, ", {} {word}", human::count(count))?;
        }
        if !self.secrets.is_empty() {
            let count = human::count(self.secrets.len() as u64);
            write!(out, ", {count} with credentials")?;
        }
        if !self.conflicts.is_empty() {
            write!(
                out,
                ", {} in conflict",
                human::count(self.conflicts.len() as u64)
            )?;
        }
        if self.dry_run {
            out.write_str("; nothing is done")?;
        }
        write!(
            out,
            "\nnew {}, stored {}, in {}; {}",
            human::bytes(self.new_bytes),
            human::bytes(self.stored_bytes),
            human::duration(std::time::Duration::from_secs_f64(self.secs)),
            names::shown(self.directory.as_os_str().as_bytes())
        )
    }
}
