//! Collects what a hub in the test's process logs.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

/// What the hub logs.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    /// Collects everything that this process logs from now on.
    pub(crate) fn install() -> Self {
        let log = Self::default();
        let to = log.clone();
        let all = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || to.clone());
        // Another test of the same process may have been first.
        let _ = all.try_init();
        log
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
