//! What the opened stores warn of, printed at the end of a command.

use std::path::Path;

use store::{Error, Remedy, Result, Store};

use super::{Context, elsewhere};
use crate::ui::remedy;

impl Context {
    /// Prints the warnings of all opened stores, even with --quiet.
    ///
    /// # Errors
    /// Partial, if something is missing from the result.
    pub(crate) fn tell_warnings(&self) -> Result<()> {
        let mut missing = None;
        let opened = self.opened.borrow();
        let warnings = opened.iter().flat_map(|store| {
            store
                .warnings()
                .into_iter()
                .map(move |warning| (store, warning))
        });
        for (store, warning) in warnings {
            let text = match warning.remedy {
                Some(remedy) => {
                    let advice = self.advice_at(store, remedy);
                    format!("{}; {advice}", warning.text)
                }
                None => warning.text,
            };
            match missing.is_none() && warning.is_part {
                true => missing = Some(Error::partial(text)),
                false => self.out.warning(format_args!("warning: {text}")),
            }
        }
        missing.map_or(Ok(()), Err)
    }

    /// The words of a remedy. If `store` is not the selected one, their commands name it.
    fn advice_at(&self, store: &Store, remedy: Remedy) -> String {
        let url = store.remote().url();
        let error = Error::unavailable("").hint(remedy);
        let canonical = Path::new(&url).canonicalize().ok();
        let is_own = |own: String| own == url || canonical.as_deref() == Some(Path::new(&own));
        let error = match self.store_url().is_ok_and(is_own) {
            true => error,
            false => elsewhere::at(error, &url),
        };
        error
            .remedy()
            .map(remedy::words)
            .unwrap_or_default()
            .into_owned()
    }
}
