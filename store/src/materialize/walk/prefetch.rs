//! A walk that fills the pool and makes no tree.

use super::*;

impl<'m> Walk<'m> {
    /// Fills the pool with every file of the tree.
    pub(in crate::materialize) fn prefetch(&mut self, node: &Node) -> Result<()> {
        self.prefetch_below(node, &Vec::new(), &self.start(), 0)?;
        self.settle()
    }

    pub(super) fn prefetch_below(
        &mut self,
        node: &Node,
        path: &Vec<u8>,
        canonical: &[Vec<u8>],
        depth: usize,
    ) -> Result<()> {
        match node {
            Node::File {
                content,
                executable,
            } => {
                self.report.files += 1;
                self.report.bytes += content.size;
                let key = PoolKey {
                    content: *content,
                    executable: *executable,
                };
                let above = path.rsplitn(2, |byte| *byte == b'/').nth(1);
                let is_private = self.is_private(above.unwrap_or_default(), content.size);
                if content.size == 0 || self.pool.has(&key, is_private)? {
                    self.report.unchanged += 1;
                    self.progress.advance(1, content.size);
                    return Ok(());
                }
                let placing = Placing {
                    key,
                    is_private,
                    time: Time::default(),
                };
                let waiting = Waiting {
                    dir: Arc::from(&b""[..]),
                    name: Vec::new(),
                    is_fresh: true,
                    what: What::File(placing),
                };
                self.put_off(waiting, content.size)
            }
            Node::Symlink { target } if self.request.flatten => {
                let (_, above) = canonical.split_last().unwrap_or((path, &[]));
                match self.whole.follow(above, target)? {
                    Leads::To(file @ Node::File { .. }, canonical) => {
                        self.prefetch_below(&file, path, &canonical, depth)
                    }
                    _ => Ok(()),
                }
            }
            Node::Symlink { .. } => {
                self.report.symlinks += 1;
                Ok(())
            }
            Node::Tree { .. } if depth > disk::DEPTH_MAX => {
                Err(disk::too_deep(Path::new(&shown(path).to_string())))
            }
            Node::Tree { content, .. } => {
                self.report.directories += 1;
                for entry in self.reader.tree(content)? {
                    let path = join(path, &entry.name);
                    if self.is_wanted(&path, &entry.node)? {
                        self.prefetch_below(
                            &entry.node,
                            &path,
                            &extended(canonical, &entry.name),
                            depth + 1,
                        )?;
                    }
                }
                Ok(())
            }
        }
    }
}
