//! Files of this host: atomic writes, opening of regular files only, memory maps, free space.

mod atomic;
mod free;
mod mmap;
mod stamps;

pub use atomic::open_regular;
pub(crate) use atomic::{
    build_atomically, is_host_local, open_object, read_regular, stat_regular, write_atomically,
};
pub use free::free_bytes;
pub(crate) use free::free_bytes_at;
pub(crate) use mmap::map;
pub(crate) use stamps::stamps;
