# frozen_string_literal: true

class MessagesController < ApplicationController
  # A script may post JSON; a form still needs its token.
  protect_from_forgery with: :exception, unless: -> { request.format.json? }

  def index
    @messages = Message.order(id: :desc).limit(20)
    respond_to do |format|
      format.html
      format.json { render json: @messages.as_json(only: %i[id text]) }
    end
  end

  def create
    message = Message.new(params.require(:message).permit(:text))
    saved = message.save
    respond_to do |format|
      format.html { redirect_to root_path }
      format.json { render json: saved ? { id: message.id } : message.errors, status: saved ? 201 : 422 }
    end
  end
end
