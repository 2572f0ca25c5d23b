//! List nodes: accepted input has no other encoding.

use store::format::ListNode;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let Ok(node) = ListNode::decode("x", data) else {
        return false;
    };
    assert_eq!(node.encode(), data);
    true
}
