//! Log entries: an accepted entry is the same after it is written again, and is applied whole or not at all.

use store::format::{LogEntry, ReadAs, State};

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::text(data)] {
        if let Ok(entry) = LogEntry::decode(42, bytes) {
            accepted = true;
            let again = entry.encode().unwrap();
            assert_eq!(LogEntry::decode(42, &again).unwrap(), entry);
            fold(entry);
        }
    }
    accepted
}

/// Applies the entry twice, the second time with the next number, so that its changes conflict.
fn fold(mut entry: LogEntry) {
    let mut state = State::default();
    for number in 1..=2 {
        entry.number = number;
        (entry.store, entry.prev) = (state.store, state.entry);
        (entry.stands_for, entry.read_as) = (None, ReadAs::default());
        let before = state.clone();
        if state.apply(&entry).is_err() {
            assert_eq!(state, before);
            return;
        }
        let bytes = state.encode().unwrap();
        assert_eq!(State::decode("x", &bytes).unwrap(), state);
    }
}
