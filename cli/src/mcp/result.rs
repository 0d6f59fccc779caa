//! What a tool of an MCP server returned, as the text of a `tool` message.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// The longest result that a model gets, in bytes. It is more than most contexts hold.
const MAX_RESULT: usize = 256 * 1024;

/// The texts of a result, one below the other. What is not text is named.
pub(super) fn text(result: &CallToolResult) -> String {
    let mut texts: Vec<String> = result.content.iter().map(block).collect();
    if texts.is_empty() {
        texts.extend(result.structured_content.as_ref().map(ToString::to_string));
    }
    let mut text = texts.join("\n");
    if text.len() > MAX_RESULT {
        let mut end = MAX_RESULT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[{left_out} bytes more were left out]"));
    }
    if result.is_error == Some(true) { format!("Error: {text}") } else { text }
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image: {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio: {}]", audio.mime_type),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, .. } => format!("[file: {uri}]"),
            _ => "[file]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[file: {}]", link.uri),
        _ => "[content of an unknown kind]".to_owned(),
    }
}
