//! Checkpoints: what is accepted is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::State;

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &fuzz::checkpoint(data)] {
        if let Ok(state) = State::decode("x", bytes) {
            let again = state.encode().unwrap();
            assert_eq!(State::decode("x", &again).unwrap(), state);
        }
    }
});
