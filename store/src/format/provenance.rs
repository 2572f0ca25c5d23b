//! Where an object comes from: the store that it belongs to, and how much of the log its writer knew.
//!
//! With this, objects of two stores in one place and a log that was rolled back are detected.

use super::cursor::corrupt;
use crate::error::Result;
use crate::id::StoreId;
use crate::remedy::Remedy;

/// The store that an object belongs to, and how much of the log its writer knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The store that it was written for.
    pub store: StoreId,
    /// A log entry that existed when its writer began; 0 before the first.
    pub began: u64,
}

impl Provenance {
    /// Checks that `object` can belong to `store`, whose log had entries up to `number` when the object was named.
    ///
    /// # Errors
    /// Corrupt, when it belongs to another store, or its writer knew later entries of the log.
    pub fn check(&self, object: &str, store: StoreId, number: u64) -> Result<()> {
        self.check_store(object, store)?;
        if self.began <= number {
            return Ok(());
        }
        let began = self.began;
        let detail = format_args!(
            "its writer knew entry {began} of the log, and it was named by an entry behind {number}"
        );
        Err(corrupt(object, detail).hint(Remedy::RepairSegments))
    }

    /// Checks that `object` belongs to `store`. If the store is not known, any object passes.
    ///
    /// # Errors
    /// Corrupt, when it belongs to another store.
    pub fn check_store(&self, object: &str, store: StoreId) -> Result<()> {
        if !store.is_known() || self.store == store {
            return Ok(());
        }
        let found = self.store;
        let detail = format_args!("is of store {found}, this is store {store}");
        Err(corrupt(object, detail).hint(Remedy::RemoveStrangers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_is_of_another_store_or_of_a_longer_log_is_told() {
        let (own, other) = (StoreId([1; 16]), StoreId([2; 16]));
        let here = Provenance {
            store: own,
            began: 7,
        };
        here.check("x", own, 7).unwrap();
        here.check("x", StoreId::default(), 7).unwrap();
        let error = here.check("x", own, 6).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(
            error.to_string(),
            "x: its writer knew entry 7 of the log, and it was named by an entry behind 6"
        );
        let error = here.check("x", other, 9).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("x: is of store {own}, this is store {other}")
        );
    }
}
