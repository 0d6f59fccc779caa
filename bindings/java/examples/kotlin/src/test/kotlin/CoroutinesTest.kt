package dev.llb.example

import dev.llb.ChatOptions
import dev.llb.ChatRequest
import dev.llb.LlbModel
import dev.llb.scripted.TestModels
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** The functions of the example, on scripted models. */
class CoroutinesTest {

    @Test
    fun piecesAreTheReply() = runBlocking {
        LlbModel.open(TestModels.scripted("text.gguf")).use { model ->
            val text = model.reply(ChatRequest.of("hi")).text()
            val pieces = model.pieces(ChatRequest.of("hi")).toList()
            assertEquals(text, pieces.joinToString(""))
            assertTrue(pieces.size > 1)
            assertEquals(List(5) { text }, model.replies(List(5) { "hi" }))
        }
    }

    /** While the collector waits, another request generates as many tokens. */
    @Test
    fun aSlowCollectorLosesNothing() = runBlocking {
        val options = ChatOptions.builder(TestModels.scripted("long.gguf")).parallel(2).build()
        LlbModel.open(options).use { model ->
            val request = ChatRequest.builder().user("hi").temperature(0.0).maxTokens(300).build()
            val text = StringBuilder()
            model.pieces(request).collect { piece ->
                if (text.isEmpty()) {
                    model.reply(request)
                }
                text.append(piece)
            }
            assertEquals(model.reply(request).text(), text.toString())
        }
    }

    /** With one chat the second request can run only after the first has ended. */
    @Test
    fun cancellingAFlowEndsTheGeneration() = runBlocking {
        val options = ChatOptions.builder(TestModels.scripted("long.gguf")).parallel(1).build()
        LlbModel.open(options).use { model ->
            val long = ChatRequest.builder().user("hi").maxTokens(100_000).build()
            assertTrue(model.pieces(long).first { it.isNotEmpty() }.isNotEmpty())
            val short = ChatRequest.builder().user("hi").maxTokens(2).build()
            assertEquals(dev.llb.FinishReason.LENGTH, model.reply(short).finishReason())
        }
    }
}
