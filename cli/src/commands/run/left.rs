//! What an earlier run left in the directory of a cache is saved before the command starts.

use std::path::PathBuf;
use std::time::Instant;

use store::{Result, Store, Unwatched};

use super::advice::not_saved;
use super::caches::Cache;
use crate::commands::save;
use crate::context::Context;
use crate::host::place::Held;
use crate::ui::{failure, remedy};

impl Cache {
    /// Saves what an earlier run left. Returns the paths that were left out.
    pub(super) fn save_what_was_left(
        &self,
        store: &Store,
        (held, message): (&Held, String),
        context: &Context,
    ) -> Result<Vec<PathBuf>> {
        let request = save::of_run(
            &self.dir,
            &self.name,
            (&self.exclude, self.base()),
            (held, message),
            context,
        );
        let began = Instant::now();
        let report = save::put_or_nothing(store, &request, &Unwatched, None);
        let report = report.map_err(|error| {
            let dir = self.dir.display();
            let what = format!("{dir}: what an earlier run left here is not saved");
            let error = not_saved(error.within(what), &self.dir, &self.name);
            let away = format!(
                "move {dir} away: the run then begins with what {} has",
                self.name
            );
            let advice = error.remedy().map(remedy::words);
            error.hint(advice.map_or(away.clone(), |advice| format!("{advice}; or {away}")))
        })?;
        if !report.unchanged {
            context.out.note(format_args!(
                "note: {}: what an earlier run left here was saved as {}@{}",
                self.dir.display(),
                self.name,
                report.version.unwrap_or_default()
            ));
        }
        for (_, error) in &report.skipped {
            let told = failure::one_line(error);
            context.out.warning(format_args!(
                "warning: not saved, and left as it is: {told}"
            ));
        }
        let left_out = report.skipped.iter().map(|(path, _)| path.clone());
        let left_out = left_out.collect();
        save::tell_of_left(&self.dir, &self.name, report, began.elapsed(), context);
        Ok(left_out)
    }
}
