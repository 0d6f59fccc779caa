//! Fuzzes templates that follow Jinja's grammar. They reach parts of the engine that random text
//! rarely reaches. With `LLB_FUZZ_SHOW` each template is printed as a JSON string.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llb_fuzz::grammar;

fuzz_target!(|bytes: &[u8]| {
    let template = grammar::template(bytes);
    if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
        println!("{}", serde_json::Value::from(template.as_str()));
    }
    let small = llb_fuzz::limits(true);
    let templates = match llb::template::Templates::compile(&llb_fuzz::sources(&template)) {
        Ok(templates) => templates,
        Err(error) => {
            let kind = error.details().and_then(|details| details.get("kind").cloned());
            assert!(
                kind.as_ref().is_some_and(|kind| kind == "limit" || kind == "unsupported"),
                "{error}\n{template}"
            );
            return;
        }
    };
    let conversation = llb_fuzz::conversation();
    let first = llb_fuzz::render(&templates, &conversation, &small);
    let again = llb_fuzz::render(&templates, &conversation, &small);
    assert_eq!(first, again, "{template}");
});
