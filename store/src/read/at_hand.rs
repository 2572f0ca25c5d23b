//! Small contents out of what is in memory, for those who may not wait.

use super::Reader;
use crate::format::Content;

impl Reader<'_> {
    /// Returns the verified bytes of a content of one chunk, if the frame that has it is kept decoded, and its place is known
    /// without asking a store over a network. Does not wait for the store.
    ///
    /// Nothing is returned for bytes that are wrong, either: [`Self::meta_chunk`] says what is wrong with them.
    pub fn at_hand(&self, content: &Content) -> Option<Vec<u8>> {
        if content.depth > 0 || content.size == 0 {
            return None;
        }
        let view = self.view();
        if view.index.is_far() {
            return None;
        }
        let location = view.index.find(&content.root).ok()??;
        let frame = self.kept().take(&location)?;
        let bytes = location.of(content.root).verified(&frame).ok()?;
        (bytes.len() as u64 == content.size).then(|| bytes.to_vec())
    }
}
