//! The tree that a list of this host describes. Its nodes are known to a reader, and stored nowhere.

use std::fs::File;

use crate::error::Result;
use crate::format::{Content, Node, Totals, TreeEncoder, TreeEntry};
use crate::host::pool::list::{ListReader, NEVER, Thing};
use crate::id::ChunkId;
use crate::read::Reader;
use crate::tree::MetaBuilder;

/// A directory whose entries are still being added.
struct Open {
    name: Vec<u8>,
    /// Whether it existed only for the files of a job in it.
    is_unwanted: bool,
    entries: Vec<TreeEntry>,
}

/// Rebuilds the tree that a list describes, and adds its nodes to `reader`.
pub(super) fn rebuilt(reader: &Reader<'_>, list: File) -> Result<Content> {
    let mut list = ListReader::<Thing>::new(list)?;
    let mut open = vec![Open::new(Vec::new(), false)];
    while let Some((level, name, thing)) = list.next()? {
        while open.len() > level.max(1) {
            close(reader, &mut open)?;
        }
        let Some(above) = open.last_mut() else { break };
        // If a path is listed several times, the last one counts.
        if above.entries.last().is_some_and(|last| last.name == name) {
            above.entries.pop();
        }
        let node = match thing {
            Thing::Dir { .. } if level == 0 => continue,
            Thing::Dir { time } => {
                open.push(Open::new(name, time == NEVER));
                continue;
            }
            Thing::File { key, .. } => Node::File {
                content: key.content,
                executable: key.executable,
            },
            Thing::Symlink { target, .. } => Node::Symlink { target },
            Thing::Left => continue,
        };
        above.entries.push(TreeEntry { name, node });
    }
    while open.len() > 1 {
        close(reader, &mut open)?;
    }
    let root = open.pop().map(|root| root.entries).unwrap_or_default();
    known_tree(reader, &root)
}

impl Open {
    fn new(name: Vec<u8>, is_unwanted: bool) -> Self {
        Self {
            name,
            is_unwanted,
            entries: Vec::new(),
        }
    }
}

fn close(reader: &Reader<'_>, open: &mut Vec<Open>) -> Result<()> {
    let (Some(done), Some(above)) = (open.pop(), open.last_mut()) else {
        return Ok(());
    };
    if done.is_unwanted && done.entries.is_empty() {
        return Ok(());
    }
    let mut totals = Totals::default();
    done.entries
        .iter()
        .for_each(|entry| totals.add(&entry.node));
    let content = known_tree(reader, &done.entries)?;
    let node = Node::Tree { content, totals };
    above.entries.push(TreeEntry {
        name: done.name,
        node,
    });
    Ok(())
}

pub(super) fn known_tree(reader: &Reader<'_>, entries: &[TreeEntry]) -> Result<Content> {
    let chunker = reader.store().chunker().clone();
    let mut bytes = MetaBuilder::new(chunker);
    let mut encoder = TreeEncoder::new(&mut bytes.bytes);
    for entry in entries {
        encoder.push(entry, &mut bytes.bytes)?;
    }
    bytes.finish(&mut |bytes| {
        let id = ChunkId::of(bytes);
        reader.know(id, bytes);
        Ok(id)
    })
}
