//! That something has happened, for whoever waits for it.

use crate::settings::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Clone, Default)]
pub(crate) struct Token(Arc<(Mutex<bool>, Condvar)>);

impl Token {
    pub(crate) fn set(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *lock(&self.0.0)
    }

    pub(crate) fn wait(&self) {
        let mut is_set = lock(&self.0.0);
        while !*is_set {
            is_set = self.0.1.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
