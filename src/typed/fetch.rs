//! A download from the Hugging Face hub.

use serde_json::Value;

use super::events::Events;
use super::members::Members;
use super::model::Model;
use crate::error::{Code, Error, Result};
use crate::ffi;
use crate::hub::{self, Environment};

/// A download of a model from the Hugging Face hub into its cache.
///
/// ```no_run
/// use llb::Fetch;
///
/// let model = Fetch::new("Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0").run()?;
/// let chat = model.n_ctx(4096).chat()?;
/// # Ok::<(), llb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fetch {
    request: Members,
    events: Events,
}

impl Fetch {
    /// A download of `org/name` or `org/name:QUANT`.
    pub fn new(id: impl Into<String>) -> Fetch {
        let fetch = Fetch { request: Members::default(), events: Events::default() };
        fetch.set("id", id.into())
    }

    /// Receives the events of the download, such as `fetch_progress:1000000/5000000` (docs/hub.md).
    #[must_use]
    pub fn on_event(self, on_event: impl Fn(&str) + Send + Sync + 'static) -> Fetch {
        Fetch { events: Events::new(on_event), ..self }
    }

    /// Sets a member of the request by its name in JSON, such as `revision` and `offline`
    /// (docs/hub.md).
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Fetch {
        self.request.set(name, value);
        self
    }

    /// Downloads the model unless the cache has it, verifies it, and returns it.
    ///
    /// # Errors
    /// The `Hub…` codes, [`Offline`](Code::Offline), and
    /// [`ModelNotToolCapable`](Code::ModelNotToolCapable), before the download.
    pub fn run(&self) -> Result<Model> {
        let request = self.request.to_value("request")?;
        let events = self.events.sink();
        let reply = ffi::catch(|| {
            hub::fetch_value(&request, &Environment::process(), &mut |event| events(event))
        })?;
        let path = reply["path"].as_str().ok_or_else(|| {
            Error::new(Code::InvalidRequest, "dry_run: nothing is downloaded, so there is no model")
        })?;
        Ok(Model::new(path))
    }
}
