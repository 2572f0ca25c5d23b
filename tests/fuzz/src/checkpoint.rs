//! Checkpoints: an accepted checkpoint is the same after it is written again.

use store::format::State;

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::checkpoint(data)] {
        if let Ok(state) = State::decode("x", bytes) {
            accepted = true;
            let again = state.encode().unwrap();
            assert_eq!(State::decode("x", &again).unwrap(), state);
        }
    }
    accepted
}
