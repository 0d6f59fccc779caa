//! Tests `llb_rank`: scores of documents for a query. The expected scores are in
//! tests/data/embeddings.json, computed with NumPy (scripts/embeddings.py).

use serde_json::{Value, json};

use crate::abi::{Embedder, rank};
use crate::embeddings::{check_error, golden};

/// The score of each document, in the order of the request.
#[track_caller]
fn scores(embedder: &Embedder, query: &str, documents: &[&str]) -> Vec<f64> {
    let reply = rank(embedder, &json!({ "query": query, "documents": documents }));
    assert_eq!(reply["type"], "ranking", "{reply}");
    let results = reply["results"].as_array().unwrap();
    let mut scores = vec![f64::NAN; documents.len()];
    for result in results {
        let index = result["index"].as_u64().unwrap() as usize;
        scores[index] = result["relevance_score"].as_f64().unwrap();
    }
    let sorted: Vec<f64> =
        results.iter().map(|result| result["relevance_score"].as_f64().unwrap()).collect();
    assert!(sorted.is_sorted_by(|a, b| a >= b), "{sorted:?}");
    scores
}

#[test]
fn scores_are_those_of_numpy() {
    for (name, file) in [("scores", "reranker.gguf"), ("decoder_scores", "decoder_reranker.gguf")] {
        let embedder = Embedder::open(file, json!({}));
        for case in golden()[name].as_array().unwrap() {
            let (query, document) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
            let found = scores(&embedder, query, &[document])[0];
            let expected = case[2].as_f64().unwrap();
            // The tolerance is for a cache of 16-bit numbers.
            assert!((found - expected).abs() < 2e-3, "{name} {query}: {found} {expected}");
        }
    }
}

#[test]
fn documents_are_sorted_by_score() {
    for file in ["reranker.gguf", "decoder_reranker.gguf"] {
        let embedder = Embedder::open(file, json!({}));
        let documents = ["the cat", "a dog sits", "x", "the dog", "7"];
        let alone = documents.map(|document| scores(&embedder, "a cat", &[document])[0]);
        let together = scores(&embedder, "a cat", &documents);
        assert!(together.iter().zip(alone).all(|(a, b)| (a - b).abs() < 1e-3), "{together:?}");
        let request = json!({
            "query": "a cat", "documents": documents, "top_n": 2, "return_documents": true,
        });
        let best = rank(&embedder, &request)["results"].clone();
        assert_eq!(best.as_array().map(Vec::len), Some(2));
        let first = best[0]["index"].as_u64().unwrap() as usize;
        assert!(alone.iter().all(|score| *score <= alone[first] + 1e-3));
        assert_eq!(best[0]["document"], json!({ "text": documents[first] }));
    }
}

#[test]
fn long_documents_are_refused_or_cut() {
    for (file, n_ctx) in [("reranker.gguf", 64), ("decoder_reranker.gguf", 256)] {
        let embedder = Embedder::open(file, json!({ "n_ctx": n_ctx }));
        let long = "the cat sits. ".repeat(1000);
        let request = json!({ "query": "cat", "documents": ["a", long] });
        let refused = rank(&embedder, &request);
        check_error(&refused, "CONTEXT_OVERFLOW", "documents[1]: has ");
        assert_eq!(refused["error"]["details"]["index"], 1);
        let cut = json!({ "query": "cat", "documents": ["a", long], "truncate": true });
        let reply = rank(&embedder, &cut);
        assert_eq!(reply["truncated"][0]["index"], 1, "{reply}");
        let alone = rank(&embedder, &json!({ "query": "cat", "documents": ["a"] }));
        let tokens = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().unwrap();
        let kept = tokens(&reply) - tokens(&alone);
        assert!(kept <= n_ctx && kept * 10 >= n_ctx * 9, "{kept} of {n_ctx}");
        let request = json!({ "query": long, "documents": ["a"], "truncate": true });
        check_error(&rank(&embedder, &request), "CONTEXT_OVERFLOW", "query: has ");
    }
}

#[test]
fn bad_requests_are_errors() {
    let embedder = Embedder::open("reranker.gguf", json!({}));
    for (request, message) in [
        (json!({}), "query: missing"),
        (json!({ "query": "a" }), "documents: missing"),
        (json!({ "query": "a", "documents": [] }), "documents: is empty"),
        (json!({ "query": "a", "documents": [1] }), "documents[0]: expected a string"),
        (json!({ "query": ["a"], "documents": ["b"] }), "query: expected a string"),
        (json!({ "query": "a", "documents": vec!["b"; 65_537] }), "documents: has 65537 texts"),
        (json!({ "query": "a", "documents": ["b"], "top_n": "all" }), "top_n: expected"),
    ] {
        check_error(&rank(&embedder, &request), "INVALID_REQUEST", message);
    }
    let vectors = embedder.embed(&json!({ "input": "a" }));
    check_error(&vectors, "INVALID_REQUEST", "call llb_rank");
    let request = json!({ "query": "a", "documents": ["b"] });
    let other = Embedder::open("embedding.gguf", json!({}));
    check_error(&rank(&other, &request), "INVALID_REQUEST", "opened to make vectors");
    // A model with weights for scores can still compute vectors.
    let vectors = Embedder::open("reranker.gguf", json!({ "pooling": "mean" }));
    assert_eq!(vectors.embed(&json!({ "input": "a" }))["dimensions"], 32);
    check_error(&rank(&vectors, &request), "INVALID_REQUEST", "pooling \"mean\"");
}
