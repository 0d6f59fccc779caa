//! `llb fetch`: downloads a model from the hub to the cache and verifies it.

use clap::Args;
use serde_json::json;

use crate::arguments::set;
use crate::failure::{Failure, Result};
use crate::input::{print, print_json};
use crate::model_source::{self, ModelSource};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// ORG/NAME, ORG/NAME:QUANT, or the URL of a model on the hub
    id: String,
    /// The file of the repository to download
    #[arg(long, value_name = "NAME")]
    filename: Option<String>,
    /// The projector to download with the model: auto, none, or a file of the repository [default:
    /// auto]
    #[arg(long, value_name = "NAME")]
    projector: Option<String>,
    /// Branch, tag or commit [default: main]
    #[arg(long)]
    revision: Option<String>,
    /// Cache folder [default: that of huggingface_hub]
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<String>,
    /// Use only the cache; make no connection
    #[arg(long)]
    offline: bool,
    /// Describe the download as JSON, without downloading
    #[arg(long)]
    dry_run: bool,
    /// Accept a model without tool support
    #[arg(long)]
    any: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_page = arguments.id.contains("://") || arguments.id.starts_with("hf:");
    let mut request = match ModelSource::read(&arguments.id)? {
        ModelSource::Hub(request) if is_page => request,
        _ => json!({ "id": arguments.id }),
    };
    set(&mut request, "filename", arguments.filename.clone());
    set(&mut request, "projector", arguments.projector.clone());
    set(&mut request, "revision", arguments.revision.clone());
    set(&mut request, "cache_dir", arguments.cache_dir.clone());
    request["offline"] = arguments.offline.into();
    request["dry_run"] = arguments.dry_run.into();
    request["require_tools"] = (!arguments.any).into();
    let fetched = model_source::fetch(&request).map_err(|failure| {
        if failure.is("MODEL_NOT_TOOL_CAPABLE") {
            return failure.next("add --any to fetch a model without tools");
        }
        failure
    })?;
    if arguments.dry_run {
        print_json(&fetched);
        return Ok(());
    }
    let path = fetched["path"].as_str();
    let path = path.ok_or_else(|| Failure::new("the reply of a fetch has no path"))?;
    print(&format!("{path}\n"));
    Ok(())
}
