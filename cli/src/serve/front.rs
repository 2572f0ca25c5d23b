//! The door for people and for clients of a Hub: pages for browsers, the Hub's protocol for all others.

use std::sync::Arc;

use hyper::http::request::Parts;

use crate::serve::answer::Answer;
use crate::serve::hub::Hub;
use crate::serve::page::Page;
use crate::serve::{Asked, Door};

/// Both behind one address.
pub(crate) struct Front {
    hub: Arc<Hub>,
    page: Page,
}

impl Front {
    pub(crate) fn new(hub: Arc<Hub>, page: Page) -> Self {
        Self { hub, page }
    }
}

impl Door for Front {
    const NAME: &'static str = Hub::NAME;

    async fn answer(&self, head: &Parts, asked: &mut Asked) -> Answer {
        match Page::is_for(head) {
            true => self.page.answer(head).await,
            false => self.hub.answer(head, asked).await,
        }
    }
}
