//! Which media files the requests of clients may name, beside those that they contain.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

/// The options of a create that these arguments set.
pub(super) const MEDIA_OPTIONS: [&str; 2] = ["media_folders", "media_urls"];

const MEDIA_URLS: [&str; 3] = ["none", "public", "all"];

#[derive(Debug, Args)]
pub(super) struct MediaArguments {
    /// A folder whose pictures clients may name in file: URLs; may be given more than once
    #[arg(long, value_name = "FOLDER", requires = "projector")]
    media_folder: Vec<PathBuf>,
    /// Servers whose pictures clients may name by http and https URLs: "public" for those of the
    /// public internet, "all" also for those of this machine and its networks [default: none]
    #[arg(long, value_name = "SERVERS", requires = "projector", value_parser = MEDIA_URLS)]
    media_urls: Option<String>,
}

impl MediaArguments {
    /// Sets the options of a chat.
    pub(super) fn set(&self, options: &mut Value) {
        if !self.media_folder.is_empty() {
            let folders = self.media_folder.iter().map(|path| path.to_string_lossy());
            options["media_folders"] = folders.collect::<Vec<_>>().into();
        }
        if let Some(servers) = &self.media_urls {
            options["media_urls"] = servers.as_str().into();
        }
    }
}
