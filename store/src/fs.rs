//! Files of this host: written whole or not at all, opened only where they are regular, mapped.

mod atomic;
mod mmap;
mod stamps;

pub use atomic::open_regular;
pub(crate) use atomic::{
    build_atomically, is_host_local, open_object, read_regular, stat_regular, write_atomically,
};
pub(crate) use mmap::map;
pub(crate) use stamps::stamps;
