//! Waits for async work from synchronous code: the border between the two.
//!
//! Directories and memory need no runtime: their futures run on the calling thread. Buckets share one small runtime,
//! which is created when the first bucket is opened.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

/// Threads of the shared runtime; they only move bytes between sockets and queues.
const RUNTIME_THREADS: usize = 2;

static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("remote")
        .enable_all()
        .build()
});

/// Where the futures of a backend run.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    /// On the calling thread.
    Here,
    /// On the shared runtime.
    Shared(Handle),
}

impl Wait {
    /// Returns the shared runtime.
    pub(super) fn shared() -> Result<Self> {
        match &*RUNTIME {
            Ok(runtime) => Ok(Self::Shared(runtime.handle().clone())),
            Err(error) => Err(Error::unavailable(format!(
                "threads for the network: {error}"
            ))),
        }
    }

    /// Blocks until `future` is done.
    pub(super) fn on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Here => block_here(future),
            Self::Shared(handle) => handle.block_on(future),
        }
    }

    /// Blocks until `future` is done, or drops it after `most`. On the calling thread, where futures do not wait for
    /// anything, `most` is ignored.
    pub(super) fn on_within<F: Future>(&self, most: Duration, future: F) -> Option<F::Output> {
        match self {
            Self::Here => Some(block_here(future)),
            Self::Shared(handle) => {
                handle.block_on(async { tokio::time::timeout(most, future).await.ok() })
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_here<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_waiting_return_what_the_future_returns() {
        let ways = [Wait::Here, Wait::shared().unwrap()];
        for way in ways {
            assert_eq!(way.on(async { 7 }), 7);
            assert_eq!(way.on(woken_by_another_thread()), 8);
            assert_eq!(way.on_within(Duration::MAX, async { 9 }), Some(9));
        }
        let never = std::future::pending::<()>();
        let given_up = Wait::shared().unwrap().on_within(Duration::ZERO, never);
        assert_eq!(given_up, None);
    }

    async fn woken_by_another_thread() -> u32 {
        let (send, receive) = futures_util::future::abortable(std::future::pending::<()>());
        let thread = std::thread::spawn(move || receive.abort());
        assert!(send.await.is_err());
        thread.join().unwrap();
        8
    }
}
