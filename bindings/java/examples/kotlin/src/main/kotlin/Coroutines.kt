/** Requests as suspending functions and flows. Cancelling a coroutine ends its generation. */
package dev.llb.example

import dev.llb.ChatReply
import dev.llb.ChatRequest
import dev.llb.LlbModel
import java.nio.file.Path
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.future.await
import kotlinx.coroutines.jdk9.asFlow
import kotlinx.coroutines.runBlocking

suspend fun LlbModel.reply(request: ChatRequest): ChatReply = inferAsync(request).await()

/** The text, in the pieces that are generated. The generation waits for a slow collector. */
fun LlbModel.pieces(request: ChatRequest): Flow<String> =
    publish(request).asFlow().map { chunk -> chunk.text() }

/** Asks several questions together. */
suspend fun LlbModel.replies(questions: List<String>): List<String> = coroutineScope {
    questions.map { async { reply(ChatRequest.of(it)).text() } }.awaitAll()
}

fun main(args: Array<String>) = runBlocking {
    LlbModel.open(Path.of(args[0])).use { model ->
        model.pieces(ChatRequest.of("Why is the sky blue?")).collect { print(it) }
        println()
        println(model.replies(listOf("What is 2 + 2?", "What is 3 + 3?")))
    }
}
