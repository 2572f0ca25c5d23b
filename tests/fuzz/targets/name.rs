//! Names as people write them, and keys: what is accepted is printed the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::{
    RefSpec, Target, checkpoint_key, log_key, pack_key, parse_checkpoint_key, parse_log_key,
    parse_pack_key, parse_segment_key, segment_key,
};

fuzz_target!(|data: &[u8]| {
    if let Ok(spec) = RefSpec::parse(data) {
        assert!(spec.name.namespace().contains(&spec.name));
        let utf8 = std::str::from_utf8(&spec.path).is_ok();
        assert!(!utf8 || spec.to_string().parse::<RefSpec>().unwrap() == spec);
    }
    if let Ok(Target::Namespace(namespace)) = Target::parse(data) {
        assert_eq!(namespace.as_str().as_bytes(), data);
    }
    if let Ok(key) = std::str::from_utf8(data) {
        assert!(parse_log_key(key).is_none_or(|number| log_key(number) == key));
        assert!(parse_checkpoint_key(key).is_none_or(|number| checkpoint_key(number) == key));
        assert!(parse_segment_key(key).is_none_or(|id| segment_key(id) == key));
        assert!(parse_pack_key(key).is_none_or(|id| pack_key(id) == key));
    }
});
