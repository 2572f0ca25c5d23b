//! Names as people write them, and keys: an accepted name is printed the same.

use store::format::{
    RefSpec, Target, checkpoint_key, log_key, pack_key, parse_checkpoint_key, parse_log_key,
    parse_pack_key, parse_segment_key, segment_key,
};

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    if let Ok(spec) = RefSpec::parse(data) {
        accepted = true;
        assert!(spec.name.namespace().contains(&spec.name));
        let utf8 = std::str::from_utf8(&spec.path).is_ok();
        assert!(!utf8 || spec.to_string().parse::<RefSpec>().unwrap() == spec);
    }
    if let Ok(Target::Namespace(namespace)) = Target::parse(data) {
        accepted = true;
        assert_eq!(namespace.as_str().as_bytes(), data);
    }
    let keys = std::str::from_utf8(data).map(|key| {
        [
            parse_log_key(key).map(log_key),
            parse_checkpoint_key(key).map(checkpoint_key),
            parse_segment_key(key).map(segment_key),
            parse_pack_key(key).map(pack_key),
        ]
    });
    for key in keys.into_iter().flatten().flatten() {
        accepted = true;
        assert_eq!(key.as_bytes(), data);
    }
    accepted
}
