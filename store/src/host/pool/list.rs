//! Lists of a tree's paths, in the order of a walk: what was made (a record), or what is to be done (a plan).
//!
//! Each entry has its level and its name; a directory precedes its content. So a list is as short for deep trees as for
//! flat ones. It is written and read in one pass, in constant memory.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::format::{CONTENT_DEPTH_MAX, Content, Time};
use crate::host::pool::PoolKey;
use crate::id::ChunkId;
use crate::remedy::Remedy;

/// The magic with which a list begins.
const LIST_MAGIC: [u8; 8] = *b"STORMADE";
/// The version of the format.
const LIST_VERSION: u8 = 1;
/// The magic and the version, as a list begins.
const HEAD: [u8; 12] = {
    let [a, b, c, d, e, f, g, h] = LIST_MAGIC;
    [a, b, c, d, e, f, g, h, LIST_VERSION, 0, 0, 0]
};
/// The level that marks the end of a list; entries of the root have level 1.
const END: u64 = 0;
/// Bytes of the checksum after the end.
const CHECKSUM_LEN: usize = 32;
/// Longest symlink target.
const TARGET_BYTES_MAX: u64 = 4096;
/// Bytes that are read or written together.
const BUFFER_BYTES: usize = 64 << 10;

/// The value of a path in a list.
pub(crate) trait Item: Sized {
    /// A directory that is mentioned only because something is below it.
    fn inner() -> Self;
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a value.
    fn decode(input: &mut Input) -> Result<Self>;
}

/// What the store makes under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A directory.
    Dir {
        /// Its modification time in the version.
        time: Time,
    },
    /// A regular file.
    File {
        /// Its content, and whether it is executable.
        key: PoolKey,
        /// Its modification time in the version.
        time: Time,
        /// Whether it is a private copy, whatever the link mode.
        is_private: bool,
    },
    /// A symbolic link.
    Symlink {
        /// The target, verbatim.
        target: Vec<u8>,
        /// Its modification time in the version.
        time: Time,
    },
    /// Something that an earlier version or a job left there; nobody knows which.
    Left,
}

/// The time of something that was made and is no longer wanted, or differs: a file that a job changed, a directory that
/// stays because a job has something in it. No file has this time.
pub(crate) const NEVER: Time = Time {
    secs: i64::MIN,
    nanos: 0,
};

/// The time of something that a job added to a part of a version, and saved, where that part does not have it. It was
/// never made there, and is not removed. No file has this time.
pub(crate) const ADDED: Time = Time {
    secs: i64::MIN,
    nanos: 1,
};

impl Thing {
    /// Whether a job added it to a part of a version, and saved it.
    pub(crate) fn is_added(&self) -> bool {
        matches!(self, Self::File { time, .. } | Self::Symlink { time, .. } if *time == ADDED)
    }

    /// The same file or symlink with another time; a directory as it is.
    pub(crate) fn at(self, time: Time) -> Self {
        match self {
            Self::File {
                key, is_private, ..
            } => Self::File {
                key,
                time,
                is_private,
            },
            Self::Symlink { target, .. } => Self::Symlink { target, time },
            other => other,
        }
    }

    /// A directory that is no longer wanted. Beside another thing of the same name, it says that the name may not have
    /// existed all the time.
    pub(crate) const NEVER_DIR: Self = Self::Dir { time: NEVER };
}

/// Writes a list.
pub(crate) struct ListWriter<T> {
    out: BufWriter<File>,
    hash: blake3::Hasher,
    bytes: Vec<u8>,
    /// The path of the last entry.
    last: Vec<Vec<u8>>,
    item: PhantomData<T>,
}

/// Reads a list.
pub(crate) struct ListReader<T> {
    input: Input,
    is_at_end: bool,
    item: PhantomData<T>,
}

/// An entry: its level, its name, and its value.
pub(crate) type Entry<T> = (usize, Vec<u8>, T);

/// The bytes of a list, read field by field.
pub(crate) struct Input(BufReader<File>);

impl<T: Item> ListWriter<T> {
    /// Begins a list in a new file.
    pub(crate) fn new(file: File) -> Result<Self> {
        let mut list = Self {
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            hash: blake3::Hasher::new(),
            bytes: Vec::new(),
            last: Vec::new(),
            item: PhantomData,
        };
        list.bytes.extend_from_slice(&HEAD);
        list.flush()?;
        Ok(list)
    }

    /// Appends the value of `path`, which must come after all earlier paths.
    pub(crate) fn push(&mut self, path: &[Vec<u8>], item: &T) -> Result<()> {
        let same = self.last.iter().zip(path).take_while(|(a, b)| a == b);
        let same = same.count();
        self.last.truncate(same);
        let above = path.len().saturating_sub(1);
        for name in path.get(same..above).unwrap_or_default() {
            self.last.push(name.clone());
            self.entry(&T::inner())?;
        }
        if let Some(name) = path.last().filter(|_| self.last.len() < path.len()) {
            self.last.push(name.clone());
        }
        self.entry(item)
    }

    /// Whether the directory `path` is in the list because something in it is.
    pub(crate) fn has(&self, path: &[Vec<u8>]) -> bool {
        self.last.len() > path.len() && self.last.starts_with(path)
    }

    fn entry(&mut self, item: &T) -> Result<()> {
        // The root has no name, but its level is counted as if it had.
        let name = self.last.last().map_or(&b""[..], Vec::as_slice);
        push_number(&mut self.bytes, self.last.len() as u64 + 1);
        push_number(&mut self.bytes, name.len() as u64);
        self.bytes.extend_from_slice(name);
        item.encode(&mut self.bytes);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.hash.update(&self.bytes);
        self.out.write_all(&self.bytes).map_err(failed)?;
        self.bytes.clear();
        Ok(())
    }

    /// Ends the list, and returns its checksum and its file.
    pub(crate) fn finish(mut self) -> Result<([u8; CHECKSUM_LEN], File)> {
        push_number(&mut self.bytes, END);
        self.flush()?;
        let sum = *self.hash.finalize().as_bytes();
        self.out.write_all(&sum).map_err(failed)?;
        let file = self.out.into_inner();
        Ok((sum, file.map_err(|error| failed(error.into_error()))?))
    }
}

impl<T: Item> ListReader<T> {
    /// Opens a list whose bytes are known to be right: it was checked, or this process wrote it.
    pub(crate) fn new(mut file: File) -> Result<Self> {
        file.rewind().map_err(failed)?;
        let mut input = Input(BufReader::with_capacity(BUFFER_BYTES, file));
        let head = input.bytes(HEAD.len())?;
        if head != HEAD {
            return Err(wrong("head"));
        }
        Ok(Self {
            input,
            is_at_end: false,
            item: PhantomData,
        })
    }

    /// Returns the next entry. Its level is 0 for the root itself, and 1 for what is in it.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<T>>> {
        if self.is_at_end {
            return Ok(None);
        }
        let level = self.input.number()?;
        if level == END {
            self.is_at_end = true;
            return Ok(None);
        }
        let level = usize::try_from(level - 1).map_err(|_| wrong("level"))?;
        let len = self.input.number()?;
        let len = usize::try_from(len).ok().filter(|len| *len <= 255);
        let name = self.input.bytes(len.ok_or_else(|| wrong("name"))?)?;
        Ok(Some((level, name, T::decode(&mut self.input)?)))
    }
}

/// The checksum of a list, if its bytes are those that were written.
pub(crate) fn checksum(mut file: &File) -> std::io::Result<Option<[u8; CHECKSUM_LEN]>> {
    file.rewind()?;
    let len = file.metadata()?.len();
    let mut head = [0; HEAD.len()];
    let Some(body) = len.checked_sub(CHECKSUM_LEN as u64) else {
        return Ok(None);
    };
    // A file that is no list may be of any length.
    if body < head.len() as u64 || file.read_exact(&mut head).is_err() || head != HEAD {
        return Ok(None);
    }
    file.rewind()?;
    let mut hash = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut input = Read::take(file, body);
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(buffer.get(..read).unwrap_or_default());
    }
    let mut sum = [0; CHECKSUM_LEN];
    file.read_exact(&mut sum)?;
    Ok((hash.finalize() == sum).then_some(sum))
}

impl Input {
    pub(crate) fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).map_err(failed)?;
        let [byte] = byte;
        Ok(byte)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(wrong("number"))
    }

    pub(crate) fn time(&mut self) -> Result<Time> {
        let secs = self.number()?;
        let nanos = u32::try_from(self.number()?).map_err(|_| wrong("time"))?;
        let secs = i64::from_le_bytes(((secs >> 1) ^ (secs & 1).wrapping_neg()).to_le_bytes());
        Ok(Time { secs, nanos })
    }

    fn key(&mut self, executable: bool) -> Result<PoolKey> {
        let size = self.number()?;
        let depth = self.byte()?;
        let root = self.bytes(32)?;
        let root = ChunkId(root.try_into().map_err(|_| wrong("content"))?);
        if depth > CONTENT_DEPTH_MAX {
            return Err(wrong("depth"));
        }
        let content = Content { size, depth, root };
        Ok(PoolKey {
            content,
            executable,
        })
    }
}

pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

pub(crate) fn push_time(out: &mut Vec<u8>, time: Time) {
    let secs = (time.secs << 1) ^ (time.secs >> 63);
    push_number(out, u64::from_le_bytes(secs.to_le_bytes()));
    push_number(out, time.nanos.into());
}

const DIR: u8 = 1;
const FILE: u8 = 2;
const SYMLINK: u8 = 3;
const LEFT: u8 = 4;
const EXECUTABLE: u8 = 0x10;
const PRIVATE: u8 = 0x20;
const UNWANTED: u8 = 0x40;

impl Item for Thing {
    fn inner() -> Self {
        Self::Dir {
            time: Time::default(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            // The time is left out, since it does not matter for what a job did.
            Self::Dir { time } => out.push(DIR | if *time == NEVER { UNWANTED } else { 0 }),
            Self::Left => out.push(LEFT),
            Self::File {
                key,
                time,
                is_private,
            } => {
                let executable = if key.executable { EXECUTABLE } else { 0 };
                out.push(FILE | executable | if *is_private { PRIVATE } else { 0 });
                push_number(out, key.content.size);
                out.push(key.content.depth);
                out.extend_from_slice(&key.content.root.0);
                push_time(out, *time);
            }
            Self::Symlink { target, time } => {
                out.push(SYMLINK);
                push_number(out, target.len() as u64);
                out.extend_from_slice(target);
                push_time(out, *time);
            }
        }
    }

    fn decode(input: &mut Input) -> Result<Self> {
        let kind = input.byte()?;
        match kind & 0x0f {
            DIR if kind & UNWANTED != 0 => Ok(Self::Dir { time: NEVER }),
            DIR => Ok(Self::inner()),
            LEFT => Ok(Self::Left),
            FILE => Ok(Self::File {
                key: input.key(kind & EXECUTABLE != 0)?,
                time: input.time()?,
                is_private: kind & PRIVATE != 0,
            }),
            SYMLINK => {
                let len = input.number()?;
                if len > TARGET_BYTES_MAX {
                    return Err(wrong("target"));
                }
                let target = input.bytes(usize::try_from(len).map_err(|_| wrong("target"))?)?;
                let time = input.time()?;
                Ok(Self::Symlink { target, time })
            }
            _ => Err(wrong("kind")),
        }
    }
}

pub(crate) fn wrong(what: &str) -> Error {
    Error::corrupt(format!("list of a tree's paths: its {what} is none"))
        .hint(Remedy::MaterializeExactly)
}

fn failed(source: std::io::Error) -> Error {
    Error::io(
        "read or write",
        "list of a tree's paths in the pool",
        source,
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn path(text: &str) -> Vec<Vec<u8>> {
        let names = text.split('/').filter(|name| !name.is_empty());
        names.map(|name| name.as_bytes().to_vec()).collect()
    }

    fn things() -> Vec<(&'static str, Thing)> {
        let time = Time {
            secs: -5,
            nanos: 999_999_999,
        };
        let key = PoolKey {
            content: Content {
                size: 1 << 40,
                depth: 3,
                root: ChunkId::of(b"root"),
            },
            executable: true,
        };
        let file = |time, is_private| Thing::File {
            key,
            time,
            is_private,
        };
        let target = b"../there".to_vec();
        vec![
            ("a", Thing::Symlink { target, time }),
            ("b", Thing::inner()),
            ("b/c", file(time, true)),
            ("b/c", file(NEVER, false)),
            ("b/d", Thing::Dir { time: NEVER }),
            ("b/d/e", Thing::Left),
            ("f", Thing::inner()),
        ]
    }

    fn written() -> ([u8; 32], File) {
        let mut list = ListWriter::new(tempfile::tempfile().unwrap()).unwrap();
        for (at, thing) in things() {
            list.push(&path(at), &thing).unwrap();
        }
        list.finish().unwrap()
    }

    #[test]
    fn a_list_comes_back_as_it_was_written() {
        let (sum, file) = written();
        assert_eq!(checksum(&file).unwrap(), Some(sum));
        let mut list = ListReader::<Thing>::new(file).unwrap();
        let mut found = Vec::new();
        while let Some((level, name, thing)) = list.next().unwrap() {
            found.push((level, name, thing));
        }
        let expected: Vec<_> = things()
            .into_iter()
            .map(|(at, thing)| (path(at).len(), path(at).pop().unwrap(), thing))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn directories_on_the_way_are_told() {
        let mut list = ListWriter::new(tempfile::tempfile().unwrap()).unwrap();
        list.push(&path("a/b/c"), &Thing::Left).unwrap();
        assert!(list.has(&path("a/b")) && !list.has(&path("a/b/c")) && !list.has(&path("b")));
        list.push(&path("a/d"), &Thing::Left).unwrap();
        list.push(&[], &Thing::Left).unwrap();
        let mut list = ListReader::<Thing>::new(list.finish().unwrap().1).unwrap();
        let mut found = Vec::new();
        while let Some((level, name, _)) = list.next().unwrap() {
            found.push((level, String::from_utf8(name).unwrap()));
        }
        let expected = [(1, "a"), (2, "b"), (3, "c"), (2, "d"), (0, "")];
        assert_eq!(
            found,
            expected.map(|(level, name)| (level, name.to_owned()))
        );
    }

    #[test]
    fn a_flipped_or_missing_byte_is_found() {
        let (_, file) = written();
        let len = file.metadata().unwrap().len();
        for at in 0..len {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&byte.map(|byte| byte ^ 1), at).unwrap();
            assert_eq!(checksum(&file).unwrap(), None, "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        for short in 0..len {
            file.set_len(short).unwrap();
            assert_eq!(checksum(&file).unwrap(), None, "{short} bytes");
        }
    }

    #[test]
    fn bytes_that_are_no_list_are_an_error() {
        for bytes in [
            &b""[..],
            b"STORMADE\x02\0\0\0\0",
            b"STORMADE\x01\0\0\0",
            b"STORMADE\x01\0\0\0\x02\xff\x02",
            b"STORMADE\x01\0\0\0\x02\x01a\x09",
            b"STORMADE\x01\0\0\0\x02\x01a\x03\xff\xff\x7f",
            b"STORMADE\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            let read = ListReader::<Thing>::new(file).and_then(|mut list| list.next());
            assert!(read.is_err(), "{}", bytes.escape_ascii());
        }
    }
}
