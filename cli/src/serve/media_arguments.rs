//! Which media files the requests of clients may name, beside those that they contain.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

/// The options of a create that these arguments set.
pub(super) const MEDIA_OPTIONS: [&str; 1] = ["media_folders"];

#[derive(Debug, Args)]
pub(super) struct MediaArguments {
    /// A folder whose pictures clients may name in file: URLs; may be given more than once
    #[arg(long, value_name = "FOLDER", requires = "projector")]
    media_folder: Vec<PathBuf>,
}

impl MediaArguments {
    /// Sets the options of a chat.
    pub(super) fn set(&self, options: &mut Value) {
        if !self.media_folder.is_empty() {
            let folders = self.media_folder.iter().map(|path| path.to_string_lossy());
            options["media_folders"] = folders.collect::<Vec<_>>().into();
        }
    }
}
