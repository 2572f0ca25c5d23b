//! Builds trees, times and the cache of unchanged files in the order of the walk, while workers finish files in any
//! order. Memory: the open directories, and the files that were finished early.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, select};

use super::beside::KeptList;
use super::dedup::Dedup;
use super::messages::{Built, Event, FileChunk, FileRead, FileTimes, Ingested, OfHost};
use super::meta::Meta;
use super::ties::{Tie, WrittenThrough, refused};
use super::{Onto, PutReport, PutRequest};
use crate::error::{Error, Result};
use crate::format::{
    Content, FrameKind, Node, Root, TimesEncoder, Totals, TreeEncoder, TreeEntry, Xattrs,
};
use crate::host::pool::PoolKey;
use crate::host::saved::Listing;
use crate::host::stat_cache::StatCacheWriter;
use crate::host::walk::Stat;
use crate::pack::{Framer, KindFrame};
use crate::store::Store;
use crate::tree::{ListBuilder, MetaBuilder};

/// Bytes of metadata that the reader of a save keeps in memory. It reads the rest from the store again.
const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The main thread of a put.
pub(super) struct Assembler<'p> {
    meta: Meta<'p>,
    cache: Option<StatCacheWriter>,
    listing: Option<Listing>,
    open: Vec<OpenTree>,
    path: Vec<u8>,
    times: TimesEncoder,
    times_bytes: MetaBuilder,
    kept: Vec<KeptList>,
    file_times: FileTimes,
    /// Metadata chunks of times that were new to the store.
    new_times: u64,
    written_through: WrittenThrough,
    /// Files whose time is lost.
    undated: u64,
    request: &'p PutRequest,
    files: HashMap<u64, FileSoFar>,
    root: Option<Root>,
    report: PutReport,
}

/// A directory whose entries are still being added.
struct OpenTree {
    name: Vec<u8>,
    encoder: TreeEncoder,
    bytes: MetaBuilder,
    totals: Totals,
}

/// What is known of a file that a worker reads.
#[derive(Default)]
struct FileSoFar {
    list: ListBuilder,
    /// The number of parts in `list`; `early` holds parts that arrived before their turn.
    parts: u64,
    early: HashMap<u64, Vec<FileChunk>>,
    end: Option<FileRead>,
    failed: Option<(PathBuf, Error)>,
}

impl<'p> Assembler<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &'p PutRequest,
        dedup: &'p Dedup,
        (cache, known, listing): OfHost<'p>,
        frames: Sender<KindFrame>,
    ) -> Result<Self> {
        let framer = Framer::new(
            FrameKind::Meta,
            request.level,
            request.verify_writes,
            frames,
        )?;
        let mut times_bytes = MetaBuilder::new(store.chunker().clone());
        let times = TimesEncoder::new(&mut times_bytes.bytes);
        Ok(Self {
            meta: Meta {
                store,
                dedup,
                framer,
                claimed: 0,
                known,
                known_bytes_left: match request.dry_run {
                    true => usize::MAX,
                    false => KNOWN_BYTES_MAX,
                },
            },
            cache,
            listing,
            open: Vec::new(),
            path: Vec::new(),
            times,
            times_bytes,
            kept: request
                .keep
                .iter()
                .map(|keep| KeptList::new(*keep, store))
                .collect(),
            file_times: FileTimes::default(),
            new_times: 0,
            written_through: WrittenThrough::default(),
            undated: 0,
            request,
            files: HashMap::new(),
            root: None,
            report: PutReport::default(),
        })
    }

    /// Handles events in order until there are none left.
    pub(super) fn run(
        mut self,
        events: &Receiver<Vec<Event>>,
        results: &Receiver<Ingested>,
    ) -> Result<Built> {
        let never = crossbeam_channel::never();
        let mut more = results;
        loop {
            // Results are also taken while no event comes, since a worker waits until its result is taken.
            select! {
                recv(events) -> events => match events {
                    Ok(events) => events.into_iter().try_for_each(|event| self.event(event, results))?,
                    Err(_) => break,
                },
                recv(more) -> result => match result {
                    Ok(result) => self.take(result)?,
                    Err(_) => more = &never,
                },
            }
        }
        if self.root.is_none() {
            return Err(Error::interrupted("the walk stopped before its end"));
        }
        // The remaining results are errors of workers that were asked to finish.
        results.iter().try_for_each(|result| self.take(result))?;
        let root = self
            .root
            .ok_or_else(|| Error::interrupted("the walk stopped before its end"))?;
        self.judge_ties()?;
        let before = self.meta.claimed;
        let times = self.times_bytes.finish(&mut |bytes| self.meta.put(bytes))?;
        self.new_times += self.meta.claimed - before;
        let kept = std::mem::take(&mut self.kept).into_iter();
        let kept = kept
            .map(|list| list.finish(&mut self.meta))
            .collect::<Result<_>>()?;
        self.meta.framer.flush()?;
        Ok(Built {
            root,
            times,
            kept,
            file_times: self.file_times.finish(),
            new_times: self.new_times,
            is_private: false,
            report: self.report,
            cache: self.cache,
            listing: self.listing,
            is_known_in_part: self.meta.known_bytes_left == 0,
            has_left_out: false,
            is_all_left_out: false,
        })
    }

    fn told_of_links(&self) -> Option<String> {
        let request = self.request;
        self.written_through.told(&request.pools, &request.source)
    }

    /// Refuses files that were written through links, unless they are wanted. Adds notes about ties.
    fn judge_ties(&mut self) -> Result<()> {
        let told = self.told_of_links();
        let notes = &mut self.report.notes;
        if let Some(told) = told {
            if !self.request.take_written_through && !is_save(self.request) {
                return Err(refused(&told));
            }
            let text = format!("written to through a link that a pool shares: {told}");
            notes.push(text.into());
        }
        if self.undated > 0 {
            let text = format!(
                "files linked from a pool whose time is not known, dated 1980: {}",
                self.undated
            );
            notes.push(text.into());
        }
        Ok(())
    }

    fn event(&mut self, event: Event, results: &Receiver<Ingested>) -> Result<()> {
        match event {
            Event::Enter { name, stat, xattrs } => self.enter(name, (&stat, &xattrs)),
            Event::Leave => self.leave(),
            Event::Symlink { name, target, stat } => {
                self.report.symlinks += 1;
                if let Some(listing) = &mut self.listing {
                    listing.symlink(&name, &target, stat.mtime)?;
                }
                self.add(
                    name,
                    Node::Symlink { target },
                    Some((&stat, &Xattrs::new())),
                )
            }
            Event::Known {
                name,
                stat,
                content,
                tie,
                xattrs,
            } => {
                self.report.unchanged_files += 1;
                // The file was in the cache, which means that its times show every change since.
                let own = (&stat, &xattrs);
                self.file(name, own, content, tie, Some(SystemTime::now()))
            }
            Event::Read {
                name,
                number,
                read_began,
                tie,
                xattrs,
            } => match self.wait(number, results)? {
                Ok((content, file)) => {
                    self.report.read_bytes += content.size;
                    let read_began = file.shows_changes.then_some(read_began);
                    self.file(name, (&file.stat, &xattrs), content, tie, read_began)
                }
                Err(skipped) => {
                    self.report.skipped.push(skipped);
                    Ok(())
                }
            },
            Event::Skipped { path, error } => {
                self.report.skipped.push((path, error));
                Ok(())
            }
        }
    }

    fn enter(&mut self, name: Vec<u8>, (stat, xattrs): (&Stat, &Xattrs)) -> Result<()> {
        self.report.directories += 1;
        self.time(stat, xattrs)?;
        if let Some(listing) = &mut self.listing {
            listing.enter(&name, stat.mtime)?;
        }
        if !name.is_empty() {
            self.path.extend_from_slice(&name);
            self.path.push(b'/');
        }
        let mut bytes = MetaBuilder::new(self.meta.store.chunker().clone());
        let encoder = TreeEncoder::new(&mut bytes.bytes);
        self.open.push(OpenTree {
            name,
            encoder,
            bytes,
            totals: Totals::default(),
        });
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some(tree) = self.open.pop() else {
            return Err(Error::interrupted("the walk left more than it entered"));
        };
        if let Some(listing) = &mut self.listing {
            listing.leave();
        }
        let length = self.path.len().saturating_sub(tree.name.len() + 1);
        self.path.truncate(length);
        let content = tree.bytes.finish(&mut |bytes| self.meta.put(bytes))?;
        self.add(
            tree.name,
            Node::Tree {
                content,
                totals: tree.totals,
            },
            None,
        )
    }

    /// Adds a file. If `read_began` is given, the file is also recorded in the cache.
    fn file(
        &mut self,
        name: Vec<u8>,
        (stat, xattrs): (&Stat, &Xattrs),
        content: Content,
        tie: Tie,
        read_began: Option<SystemTime>,
    ) -> Result<()> {
        if tie.is_written_through(&content) && self.leave_written_through(&name, stat) {
            return Ok(());
        }
        self.report.files += 1;
        self.report.bytes += content.size;
        self.path.extend_from_slice(&name);
        if let (Some(cache), Some(read_began)) = (&mut self.cache, read_began) {
            cache.record(&self.path, stat, content, read_began);
        }
        self.path.truncate(self.path.len() - name.len());
        let mut stat = *stat;
        match tie.time(&content, &stat) {
            Some(time) => stat.mtime = time,
            None => self.undated += 1,
        }
        self.file_times.push(stat.mtime);
        if let Some(listing) = &mut self.listing {
            let executable = stat.is_executable();
            let key = PoolKey {
                content,
                executable,
            };
            listing.file(&name, key, stat.mtime)?;
        }
        self.add(
            name,
            Node::File {
                content,
                executable: stat.is_executable(),
            },
            Some((&stat, xattrs)),
        )
    }

    /// Records a file that was written through a link. Returns whether it is left out, which only a save does.
    fn leave_written_through(&mut self, name: &[u8], stat: &Stat) -> bool {
        let path = [&self.path, name].concat();
        self.written_through.add(&path, stat);
        let stays_out = is_save(self.request) && !self.request.take_written_through;
        if stays_out {
            let path = self.request.source.join(OsStr::from_bytes(&path));
            let error = refused(&path.display().to_string());
            self.report.skipped.push((path, error));
        }
        stays_out
    }

    /// Adds an entry to the innermost open directory. The time of a directory is recorded when it is entered.
    fn add(&mut self, name: Vec<u8>, node: Node, own: Option<(&Stat, &Xattrs)>) -> Result<()> {
        if let Some((stat, xattrs)) = own {
            self.time(stat, xattrs)?;
        }
        let Some(tree) = self.open.last_mut() else {
            self.root = Some(Root::try_from(node)?);
            return Ok(());
        };
        tree.totals.add(&node);
        tree.encoder
            .push(&TreeEntry { name, node }, &mut tree.bytes.bytes)?;
        tree.bytes.cut(&mut |bytes| self.meta.put(bytes))
    }

    fn time(&mut self, stat: &Stat, xattrs: &Xattrs) -> Result<()> {
        let before = self.meta.claimed;
        self.times.push(stat.mtime, &mut self.times_bytes.bytes);
        self.times_bytes.cut(&mut |bytes| self.meta.put(bytes))?;
        self.new_times += self.meta.claimed - before;
        let meta = &mut self.meta;
        self.kept
            .iter_mut()
            .try_for_each(|list| list.push(stat, xattrs, meta))
    }

    /// Waits until a file has been read. Returns its content, or why it is left out.
    fn wait(
        &mut self,
        number: u64,
        results: &Receiver<Ingested>,
    ) -> Result<Result<(Content, FileRead), (PathBuf, Error)>> {
        loop {
            if let Some(mut file) = self.files.remove(&number) {
                if let Some((path, error)) = file.failed.take() {
                    return if self.request.skip_unreadable {
                        Ok(Err((path, error)))
                    } else {
                        Err(error)
                    };
                }
                if let Some(read) = file.end.take_if(|read| read.parts == file.parts) {
                    let content = file.list.finish(&mut |bytes| self.meta.put(bytes))?;
                    return Ok(Ok((content, read)));
                }
                self.files.insert(number, file);
            }
            let result = results
                .recv()
                .map_err(|_| Error::interrupted("the workers stopped"))?;
            self.take(result)?;
        }
    }

    fn take(&mut self, result: Ingested) -> Result<()> {
        match result {
            Ingested::Part {
                number,
                part,
                chunks,
            } => {
                let file = self.files.entry(number).or_default();
                file.early.insert(part, chunks);
                while let Some(chunks) = file.early.remove(&file.parts) {
                    file.parts += 1;
                    let sink = &mut |bytes: &[u8]| self.meta.put(bytes);
                    chunks
                        .into_iter()
                        .try_for_each(|(id, len)| file.list.push(id, len, sink))?;
                }
                Ok(())
            }
            Ingested::End { number, file } => {
                self.files.entry(number).or_default().end = Some(file);
                Ok(())
            }
            Ingested::Unreadable {
                number,
                path,
                error,
            } => {
                self.files.entry(number).or_default().failed = Some((path, error));
                Ok(())
            }
            Ingested::Broken(error) => Err(error),
        }
    }
}

fn is_save(request: &PutRequest) -> bool {
    matches!(request.onto, Onto::Merge(_))
}
