//! Times: accepted input has no other encoding, and means the same when it arrives in pieces.

use store::format::{Time, TimesDecoder, TimesEncoder, decode_times};

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let Ok(times) = decode_times("x", data) else {
        return false;
    };
    let mut again = Vec::new();
    let mut encoder = TimesEncoder::new(&mut again);
    times
        .iter()
        .for_each(|time| encoder.push(*time, &mut again));
    assert_eq!(again, data);
    assert_eq!(piecewise(data), times);
    true
}

fn piecewise(data: &[u8]) -> Vec<Time> {
    let mut decoder = TimesDecoder::new();
    let (mut times, mut begin) = (Vec::new(), 0);
    for end in 0..=data.len() {
        if let Some((time, taken)) = decoder.next(&data[begin..end]).unwrap() {
            begin += taken;
            times.push(time);
        }
    }
    times
}
