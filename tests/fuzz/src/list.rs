//! List nodes: what is accepted has no other spelling.

use store::format::ListNode;

/// Whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let Ok(node) = ListNode::decode("x", data) else {
        return false;
    };
    assert_eq!(node.encode(), data);
    true
}
