//! List nodes: what is accepted has no other spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::ListNode;

fuzz_target!(|data: &[u8]| {
    if let Ok(node) = ListNode::decode("x", data) {
        assert_eq!(node.encode(), data);
    }
});
